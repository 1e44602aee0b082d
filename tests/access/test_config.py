"""Settings of access control that cannot be together, and secrets that are not shown."""

import pytest

from bolide.access.config import AccessConfig
from bolide.broker.config import read_config, shown
from bolide.errors import ConfigError

INNER = '{"accessKey":"inner","secretKey":"planted-inner"}'


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        ({"aclEnable": "true", "authenticationEnabled": "true"}, "aclEnable.*leave one of them out"),
        ({"authorizationEnabled": "true"}, "authorizationEnabled.*set authenticationEnabled=true too"),
        ({"initAuthenticationUser": "bob"}, "initAuthenticationUser.*JSON of this shape"),
        (
            {"innerClientAuthenticationCredentials": '{"accessKey":"a"}'},
            "innerClientAuthenticationCredentials.*secretKey",
        ),
        ({"authenticationWhitelist": "105,abc"}, "authenticationWhitelist.*request codes"),
        ({"authenticationProvider": "com.acme.Mine"}, "authenticationProvider.*must be one of"),
    ],
)
def test_what_cannot_be_honoured_stops_the_start_with_what_to_do(settings: dict[str, str], told: str) -> None:
    with pytest.raises(ConfigError, match=told):
        read_config(settings)


def test_secrets_are_stars_where_settings_are_shown_and_never_in_an_error() -> None:
    config = read_config({"authenticationEnabled": "true", "innerClientAuthenticationCredentials": INNER})
    texts = shown(config)
    assert texts["innerClientAuthenticationCredentials"] == "******"
    assert texts["initAuthenticationUser"] == ""
    assert "planted-inner" not in repr(config)
    with pytest.raises(ConfigError) as problem:
        AccessConfig(inner='{"accessKey":"planted-inner"}')
    assert "planted-inner" not in str(problem.value)


def test_rocketmqs_own_names_of_its_built_in_parts_are_taken() -> None:
    prefix = "org.apache.rocketmq.auth."
    read_config(
        {
            "authenticationEnabled": "true",
            "authenticationProvider": prefix + "authentication.provider.DefaultAuthenticationProvider",
            "authenticationMetadataProvider": prefix + "authentication.provider.LocalAuthenticationMetadataProvider",
            "authorizationStrategy": prefix + "authorization.strategy.StatefulAuthorizationStrategy",
            "userCacheMaxNum": "1000",
        }
    )
