"""Settings of the controller: Java's file works, and what cannot be honoured is a sentence."""

import pytest

from bolide.controller.config import read_config, shown
from bolide.errors import ConfigError


def test_a_java_file_with_one_peer_works_as_it_is() -> None:
    config = read_config(
        {
            "controllerDLegerGroup": "group1",
            "controllerDLegerPeers": "n0-127.0.0.1:9878",
            "controllerDLegerSelfId": "n0",
            "controllerStorePath": "/tmp/x",
            "enableElectUncleanMaster": "true",
            "mappedFileSize": "1048576",
        }
    )
    assert (config.listen.port, config.address, config.self_id) == (9878, "127.0.0.1:9878", "n0")
    assert config.is_unclean_allowed
    assert shown(config)["mappedFileSize"] == "1048576"


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"controllerDLegerPeers": "n0-a:1;n1-b:2"}, "--etcd"),
        ({"controllerDLegerPeers": "a:1"}, "must be id-host:port"),
        ({"controllerDLegerPeers": "n0-a:1", "controllerDLegerSelfId": "n7"}, "must be one of n0"),
        ({"controllerType": "jRaft"}, "no JRaft"),
        ({"scanInactiveMasterInterval": "1"}, "must be 100 to"),
        ({"enableElectUncleanMasters": "true"}, "did you mean enableElectUncleanMaster"),
    ],
)
def test_what_cannot_be_honoured_names_the_fix(settings: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=sentence):
        read_config(settings)
