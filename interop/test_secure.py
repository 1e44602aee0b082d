"""Our client, commands and Spark at a broker of Apache's (5.5.0) with access control on, over TLS."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bolide
from bolide.remoting.config import ConnectConfig
from interop.cluster import LARGE, bolide_name_server, java_broker
from interop.process import await_that
from interop.test_tls import tls_flags
from tests.cli.inside import run, told
from tests.spark.conftest import spark  # noqa: F401 (a fixture)

RELEASE = "5.5.0"
TIMEOUT_S = 60
SECRET = "a secret of the administrator"
_AUTH = "org.apache.rocketmq.auth."
GUARDED = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "authenticationProvider": f"{_AUTH}authentication.provider.DefaultAuthenticationProvider",
    "authorizationProvider": f"{_AUTH}authorization.provider.DefaultAuthorizationProvider",
    "authenticationMetadataProvider": f"{_AUTH}authentication.provider.LocalAuthenticationMetadataProvider",
    "authorizationMetadataProvider": f"{_AUTH}authorization.provider.LocalAuthorizationMetadataProvider",
    "initAuthenticationUser": json.dumps({"username": "admin", "password": SECRET}),
    "innerClientAuthenticationCredentials": json.dumps({"accessKey": "inner", "secretKey": "a secret of brokers"}),
}
ADMIN = bolide.Credentials(access_key="admin", secret_key=SECRET)
TLS = ConnectConfig(is_tls=True)


@pytest.fixture(scope="module")
def apache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a name server that knows one broker of Apache's, which asks everybody for a name."""
    home = tmp_path_factory.mktemp("secure")
    with (
        bolide_name_server(home) as server,
        java_broker(home, RELEASE, server.endpoint, GUARDED, (*LARGE, *tls_flags(home))),
        bolide.Admin(server.endpoint, credentials=ADMIN, connect=TLS) as admin,
    ):
        await_that("the broker is known", lambda: bool(admin.clusters().broker_addr_table), TIMEOUT_S)
        admin.create_topic("Guarded", 2)
        yield server.endpoint


@pytest.fixture(autouse=True)
def as_admin(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "BOLIDE_ACCESS_KEY": "admin",
        "BOLIDE_SECRET_KEY": SECRET,
        "BOLIDE_TLS": "true",
        "BOLIDE_PROFILE": "",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.short
@pytest.mark.feature("X10")
def test_our_clients_are_let_in_with_the_right_secret(apache: str) -> None:
    with bolide.Producer("p", apache) as producer:
        assert producer.send("Guarded", b"one").is_ok
    with bolide.Consumer("g", "Guarded", apache, start_from=bolide.StartFrom.oldest()) as consumer:
        [message] = consumer.receive(1, timeout_s=TIMEOUT_S)
        assert message.body == b"one"


@pytest.mark.short
@pytest.mark.feature("X10")
@pytest.mark.parametrize(
    ("credentials", "words"),
    [
        (bolide.Credentials(access_key="admin", secret_key="wrong"), "check signature failed."),
        (bolide.Credentials(access_key="nobody", secret_key="wrong"), "User:nobody is not found."),
    ],
)
def test_our_clients_fail_at_their_start_with_apaches_words(
    apache: str, credentials: bolide.Credentials, words: str
) -> None:
    for opened in (
        bolide.Producer("p", apache, credentials=credentials),
        bolide.Consumer("g", "Guarded", apache, credentials=credentials),
        bolide.PullConsumer("g", apache, credentials=credentials),
        bolide.listening(
            apache, [bolide.Handler(function=print, group="g", topics={"Guarded": "*"})], credentials=credentials
        ),
    ):
        with pytest.raises(bolide.AccessRefused) as caught, opened:
            pass
        assert words in str(caught.value)


@pytest.mark.short
def test_without_a_name_a_consumer_fails_at_its_start_and_a_producer_at_its_first_send(
    apache: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("BOLIDE_ACCESS_KEY")
    monkeypatch.delenv("BOLIDE_SECRET_KEY")
    with pytest.raises(bolide.AccessRefused, match="bolide login"), bolide.Consumer("g", "Guarded", apache):
        pass
    with bolide.Producer("p", apache) as producer, pytest.raises(bolide.AccessRefused, match="bolide login"):
        producer.send("Guarded", b"x")


@pytest.mark.short
@pytest.mark.feature("X10")
def test_users_and_rights_of_apaches_broker_are_ours_to_change(apache: str, tmp_path: Path) -> None:
    [row] = told(apache, "user", "create", "bob", "--generate")
    assert run(apache, "acl", "grant", "bob", "Pub", "Topic:Guarded").exit_code == 0
    [users] = told(apache, "user", "list")
    assert {user["user"]: user["type"] for user in users} == {"admin": "Super", "inner": "Super", "bob": "Normal"}
    assert row["secret"] not in run(apache, "user", "list").output
    [[entry]] = told(apache, "acl", "list", "bob")
    assert (entry["resource"], entry["actions"], entry["decision"]) == ("Topic:Guarded", "Pub", "Allow")
    bob = bolide.Credentials(access_key="bob", secret_key=row["secret"])
    with bolide.Producer("p", apache, credentials=bob) as producer:
        assert producer.send("Guarded", b"of bob").is_ok
    assert run(apache, "acl", "check", "bob", "Pub", "Topic:Guarded").exit_code == 0
    done = run(apache, "acl", "check", "bob", "Sub", "Topic:Guarded")
    assert (done.exit_code, "no entry of its policies fits" in done.stdout) == (1, True)
    refused = pytest.raises(bolide.AccessRefused, match="no matched policies")
    with refused, bolide.Consumer("g", "Guarded", apache, credentials=bob):
        pass
    assert run(apache, "user", "password", "bob", given="another secret\n").exit_code == 0
    with pytest.raises(bolide.AccessRefused), bolide.Producer("p", apache, credentials=bob):
        pass
    assert run(apache, "acl", "revoke", "bob", "Topic:Guarded").exit_code == 0
    assert run(apache, "user", "delete", "bob", "--yes").exit_code == 0
    assert "bob" not in run(apache, "user", "list").stdout


@pytest.mark.short
def test_login_tries_the_key_at_apaches_broker(apache: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("BOLIDE_SECRET_KEY", "wrong")
    done = run(apache, "login")
    assert (done.exit_code, "check signature failed" in done.stderr) == (5, True), done.stderr
    monkeypatch.setenv("BOLIDE_SECRET_KEY", SECRET)
    done = run(apache, "login")
    assert (done.exit_code, "know user admin" in done.stdout) == (0, True), done.stderr
    for name in ("BOLIDE_ACCESS_KEY", "BOLIDE_SECRET_KEY", "BOLIDE_TLS", "BOLIDE_PROFILE"):
        monkeypatch.delenv(name)
    assert "Guarded" in run("", "topic", "list").stdout
    assert run("", "topic", "show", "Guarded").exit_code == 0


@pytest.mark.feature("X10")
def test_spark_reads_and_writes_with_the_right_secret_and_fails_with_the_wrong_one(
    spark: Any,  # noqa: F811
    apache: str,
) -> None:
    run(apache, "topic", "create", "SparkGuarded", "--queues", "2")
    given = {"nameServer": apache, "accessKey": "admin", "secretKey": SECRET, "useTLS": "true"}
    rows = spark.createDataFrame([(b"a",), (b"b",)], "body binary")
    rows.write.format("bolide").options(**given, topic="SparkGuarded").mode("append").save()
    reader = spark.read.format("bolide").options(**given, subscribe="SparkGuarded")
    assert sorted(bytes(row.body) for row in reader.load().select("body").collect()) == [b"a", b"b"]
    with pytest.raises(Exception, match="check signature failed"):
        reader.option("secretKey", "wrong").load().collect()
