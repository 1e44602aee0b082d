"""`bolide user` and `bolide acl` on a cluster that checks who asks, and on one that does not."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import bolide
from bolide.admin.rights import need_of
from bolide.errors import ClientError
from bolide.testing import Cluster, cluster
from tests.cli.inside import run, told

ADMIN = {"BOLIDE_ACCESS_KEY": "admin", "BOLIDE_SECRET_KEY": "secret of admin"}
GUARDED = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": '{"username":"admin","password":"secret of admin"}',
}


@pytest.fixture(scope="module")
def guarded() -> Iterator[Cluster]:
    with cluster(settings=GUARDED, brokers=2) as rocket:
        yield rocket


@pytest.fixture(autouse=True)
def as_admin(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in ADMIN.items():
        monkeypatch.setenv(name, value)


def users(rocket: Cluster) -> dict[str, Any]:
    return {row["user"]: row for row in told(rocket.namesrv, "user", "list")[0]}


@pytest.mark.feature("X10")
def test_a_user_is_made_listed_changed_and_deleted_on_every_broker(guarded: Cluster, tmp_path: Path) -> None:
    done = run(guarded.namesrv, "user", "create", "ada", given="first secret\n")
    assert (done.exit_code, done.stdout) == (0, "user ada is known on broker-0, broker-1\n"), done.stderr
    assert users(guarded)["ada"] == {
        "user": "ada",
        "type": "Normal",
        "status": "enable",
        "brokers": "broker-0, broker-1",
    }
    secret = tmp_path / "secret"
    secret.write_text("second secret")
    secret.chmod(0o600)
    assert run(guarded.namesrv, "user", "password", "ada", "--password-file", str(secret)).exit_code == 0
    ada = bolide.Credentials(access_key="ada", secret_key="second secret")
    with bolide.Admin(guarded.namesrv, credentials=ada) as admin:
        assert len(admin.check_access()) == 2
    old = bolide.Credentials(access_key="ada", secret_key="first secret")
    with bolide.Admin(guarded.namesrv, credentials=old) as admin, pytest.raises(bolide.AccessRefused):
        admin.check_access()
    assert run(guarded.namesrv, "user", "delete", "ada", "--yes").exit_code == 0
    assert "ada" not in users(guarded)


@pytest.mark.feature("X10")
def test_one_server_alone_is_told_of_a_user(guarded: Cluster) -> None:
    with bolide.Admin(guarded.namesrv) as admin:
        address = admin.clusters().broker_addr_table["broker-1"].broker_addrs[0]
    assert run(guarded.namesrv, "user", "create", "bea", "--at", address, "--generate").exit_code == 0
    assert users(guarded)["bea"]["brokers"] == "broker-1"
    assert "bea" in run(guarded.namesrv, "user", "list", "--at", address).stdout
    assert run(guarded.namesrv, "user", "delete", "bea", "--yes", "--at", address).exit_code == 0
    assert "bea" not in users(guarded)


def test_a_secret_that_is_made_is_shown_once_and_works(guarded: Cluster) -> None:
    [row] = told(guarded.namesrv, "user", "create", "root", "--super", "--generate")
    root = bolide.Credentials(access_key="root", secret_key=row["secret"])
    with bolide.Admin(guarded.namesrv, credentials=root) as admin:
        assert admin.topics() is not None
    assert row["secret"] not in run(guarded.namesrv, "user", "list").output
    assert run(guarded.namesrv, "user", "delete", "root", "-y").exit_code == 0


def test_what_a_broker_refuses_is_told_in_its_words(guarded: Cluster) -> None:
    done = run(guarded.namesrv, "user", "create", "admin", "--generate")
    assert done.exit_code == 5
    assert "The user is existed" in done.stderr
    assert run(guarded.namesrv, "user", "create", "eve", given="").exit_code == 2


@pytest.mark.feature("X10")
def test_rights_are_granted_explained_and_taken_back(guarded: Cluster) -> None:
    namesrv = guarded.namesrv
    assert run(namesrv, "user", "create", "bob", "--generate").exit_code == 0
    done = run(namesrv, "acl", "grant", "bob", "Pub,Sub", "Topic:Ord*", "Group:orders")
    assert done.stdout == "bob may Pub, Sub Topic:Ord*, Group:orders on broker-0, broker-1\n", done.stderr
    assert (
        run(namesrv, "acl", "grant", "bob", "Pub", "Topic:Orders-eu", "--deny", "--from", "10.0.0.0/8").exit_code == 0
    )
    [rows] = told(namesrv, "acl", "list", "bob")
    assert [(row["resource"], row["actions"], row["decision"], row["from"]) for row in rows] == [
        ("Group:orders", "Pub,Sub", "Allow", "anywhere"),
        ("Topic:Ord*", "Pub,Sub", "Allow", "anywhere"),
        ("Topic:Orders-eu", "Pub", "Deny", "10.0.0.0/8"),
    ]
    for words, allowed, why in (
        (("bob", "Pub", "Topic:Orders-us"), "yes", "Topic:Ord* of its Custom policy allows it"),
        (("bob", "Pub", "Topic:Orders-eu"), "yes", "Topic:Ord* of its Custom policy allows it"),
        (
            ("bob", "Pub", "Topic:Orders-eu", "--from", "10.1.2.3"),
            "no",
            "Topic:Orders-eu of its Custom policy denies it, and is the narrowest of 2 that fit",
        ),
        (("bob", "Delete", "Topic:Orders-us"), "no", "no entry of its policies fits Topic:Orders-us from 127.0.0.1"),
        (("admin", "Delete", "Topic:Orders-us"), "yes", "a Super user needs no policy"),
        (("nobody", "Pub", "Topic:T"), "no", "there is no such user"),
    ):
        done = run(namesrv, "acl", "check", *words, "-o", "json")
        found = json.loads(done.stdout)
        assert [(row["broker"], row["allowed"], row["why"]) for row in found] == [
            ("broker-0", allowed, why),
            ("broker-1", allowed, why),
        ]
        assert done.exit_code == (0 if allowed == "yes" else 1)
    assert run(namesrv, "acl", "revoke", "bob", "Topic:Ord*").exit_code == 0
    assert run(namesrv, "acl", "check", "bob", "Pub", "Topic:Orders-us").exit_code == 1
    assert run(namesrv, "acl", "revoke", "bob", "--yes").exit_code == 0
    assert told(namesrv, "acl", "list", "bob") == [[]]
    assert run(namesrv, "user", "delete", "bob", "-y").exit_code == 0


def test_a_consumer_needs_no_right_but_its_own(guarded: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    namesrv = guarded.namesrv
    [row] = told(namesrv, "user", "create", "dora", "--generate")
    run(namesrv, "topic", "create", "Read", "--queues", "1")
    run(namesrv, "send", "Read", "a line")
    run(namesrv, "acl", "grant", "dora", "Sub", "Topic:Read", "Group:readers-*")
    monkeypatch.setenv("BOLIDE_ACCESS_KEY", "dora")
    monkeypatch.setenv("BOLIDE_SECRET_KEY", row["secret"])
    read = run(namesrv, "consume", "Read", "--group", "readers-1", "--from-beginning", "--limit", "1")
    assert (read.exit_code, "a line" in read.stdout) == (0, True), read.stderr
    assert run(namesrv, "consume", "Read", "--group", "others", "--from-beginning", "--limit", "1").exit_code == 5
    assert "does not tell us" in run(namesrv, "cluster").stdout  # it answers, but not dora


def test_the_explanation_is_what_the_broker_does(guarded: Cluster) -> None:
    namesrv = guarded.namesrv
    [row] = told(namesrv, "user", "create", "cyd", "--generate")
    run(namesrv, "topic", "create", "Held", "--queues", "1")
    run(namesrv, "acl", "grant", "cyd", "Pub", "Topic:*")
    run(namesrv, "acl", "grant", "cyd", "Pub", "Topic:Held", "--deny")
    cyd = bolide.Credentials(access_key="cyd", secret_key=row["secret"])
    denied = pytest.raises(bolide.AccessRefused, match="the decision is deny")
    with bolide.Producer("p", namesrv, credentials=cyd) as producer, denied:
        producer.send("Held", b"x")
    assert run(namesrv, "acl", "check", "cyd", "Pub", "Topic:Held").exit_code == 1
    run(namesrv, "user", "delete", "cyd", "-y")


def test_users_are_copied_from_one_broker_to_another(guarded: Cluster) -> None:
    first, second = (node.address for node in guarded.brokers)
    with bolide.Admin(guarded.namesrv) as admin:
        admin.create_user("dan", "secret of dan", address=first)
        admin.grant("User:dan", ["Topic:T"], ["Pub"], address=first)
    done = run(guarded.namesrv, "user", "copy", "dan", "--from", first, "--to", second, given="secret of dan\n")
    assert done.exit_code == 0, done.stderr
    assert "is not told" in done.stderr
    assert users(guarded)["dan"]["brokers"] == "broker-0, broker-1"
    assert run(guarded.namesrv, "acl", "check", "dan", "Pub", "Topic:T").exit_code == 0
    run(guarded.namesrv, "user", "delete", "dan", "-y")


@pytest.mark.feature("X10")
def test_brokers_that_differ_are_named_and_one_command_brings_all_of_them_together(guarded: Cluster) -> None:
    first = guarded.brokers[0].address
    with bolide.Admin(guarded.namesrv) as admin:
        admin.create_user("eve", "secret of eve", address=first)
        admin.grant("User:eve", ["Topic:T"], ["Pub"], address=first)
    listed = run(guarded.namesrv, "user", "list")
    assert "broker-1 differs from other brokers in eve; `bolide user copy" in listed.stderr
    assert "broker-1 differs from other brokers in eve; `bolide acl copy" in run(guarded.namesrv, "acl", "list").stderr
    done = run(guarded.namesrv, "user", "copy", "eve", "--from", first, given="secret of eve\n")
    assert (done.exit_code, done.stderr.count("is not told")) == (0, 1), done.stderr
    assert "differs" not in run(guarded.namesrv, "user", "list").stderr
    assert "differs" not in run(guarded.namesrv, "acl", "list").stderr
    with bolide.Admin(guarded.namesrv) as admin:
        admin.grant("User:eve", ["Topic:T"], ["Pub", "Sub"], address=first)
    [rows] = told(guarded.namesrv, "acl", "copy", "eve", "--from", first)
    assert [(row["user"], row["entries"]) for row in rows] == [("eve", 1)]
    assert run(guarded.namesrv, "acl", "check", "eve", "Sub", "Topic:T").exit_code == 0
    run(guarded.namesrv, "user", "delete", "eve", "-y")


def test_without_access_control_it_says_how_to_turn_it_on() -> None:
    with cluster() as rocket:
        for words in (("user", "list"), ("acl", "list"), ("acl", "check", "ada", "Pub", "Topic:T")):
            done = run(rocket.namesrv, *words)
            assert done.exit_code == 2
            assert "access control is off" in done.stderr
            assert "bolide up --secure" in done.stderr


@pytest.mark.parametrize(
    ("action", "resource", "why"),
    [("Write", "Topic:T", "is no action"), ("All", "Topic:T", "is no action"), ("Pub", "Topic:*", "not one thing")],
)
def test_a_question_that_no_request_asks_is_refused(action: str, resource: str, why: str) -> None:
    with pytest.raises(ClientError, match=why):
        need_of(action, resource)
