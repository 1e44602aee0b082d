"""Signing in: by a file of passwords, and with the cluster's own users, of whom brokers decide."""

import asyncio
import logging
import re
from pathlib import Path

import pytest

from bolide import Admin, Credentials
from bolide.cli import dashboard
from bolide.clock import SystemClock
from bolide.dashboard.config import DashboardConfig
from bolide.dashboard.login import TRIES_MAX, TRIES_SPAN_S, Tries, is_right, read_passwords
from bolide.dashboard.server import check_door
from bolide.errors import ConfigError
from bolide.testing.blocking import Cluster
from tests.dashboard.clocks import HeldClock
from tests.dashboard.site import ORIGIN, sign_in, site


@pytest.fixture
def passwords(tmp_path: Path) -> Path:
    path = tmp_path / "passwords"
    path.write_text("# who may look\nada:lovelace\nbob:a:b\n")
    path.chmod(0o600)
    return path


def test_a_file_names_users_and_only_their_passwords_are_right(passwords: Path) -> None:
    users = read_passwords(passwords)
    assert is_right(users, "ada", "lovelace")
    assert is_right(users, "bob", "a:b")
    for name, password in (("ada", ""), ("ada", "Lovelace"), ("eve", "lovelace"), ("", ""), ("eve", "\0" * 32)):
        assert not is_right(users, name, password)


def test_a_file_that_others_may_read_or_that_says_nothing_is_refused(passwords: Path) -> None:
    passwords.chmod(0o644)
    with pytest.raises(ConfigError, match="chmod 600"):
        read_passwords(passwords)
    passwords.chmod(0o600)
    passwords.write_text("no colon\n")
    with pytest.raises(ConfigError, match="line 1"):
        read_passwords(passwords)
    passwords.write_text("\n")
    with pytest.raises(ConfigError, match="no user"):
        read_passwords(passwords)
    with pytest.raises(ConfigError, match="cannot be read"):
        read_passwords(passwords / "nowhere")


def test_five_tries_a_minute_and_no_more() -> None:
    clock = HeldClock()
    tries = Tries(clock)
    assert [tries.take("a") for _ in range(TRIES_MAX + 1)] == [True] * TRIES_MAX + [False]
    assert tries.take("b")
    clock.now_s += TRIES_SPAN_S + 1
    assert tries.take("a")


def test_a_user_who_gets_in_has_no_more_tries_at_another_ones_password() -> None:
    tries = Tries(HeldClock())
    told = []
    for _ in range(TRIES_MAX + 1):
        if tries.take("a"):
            tries.give_back("a")  # one's own password, which is right
        told.append(tries.take("a"))
    assert told == [True] * TRIES_MAX + [False]
    tries.give_back("nobody")


def test_a_user_who_is_not_there_takes_as_long_as_one_with_another_password(
    passwords: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[int, int]] = []

    def compare(one: bytes, other: bytes) -> bool:
        compared.append((len(one), len(other)))
        return one == other

    monkeypatch.setattr("bolide.dashboard.login.hmac.compare_digest", compare)
    users = read_passwords(passwords)
    for name, password in (("ada", "x"), ("eve", "x"), ("ada", "x" * 900), ("ada", "lovelace")):
        is_right(users, name, password)
    assert compared == [(32, 32)] * 4, "whole digests, by the function that takes as long for each"


def test_a_password_is_in_no_address_no_log_and_no_audit(
    rocket: Cluster, passwords: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    audit = tmp_path / "audit.jsonl"
    with site(rocket.namesrv, password_file=passwords, audit_file=audit, allows_changes=True) as found:
        assert 'method="post"' in found.client.get("/login").text
        in_address = {"user": "ada", "password": "lovelace"}
        answer = sign_in(found, "", "")
        assert found.client.post("/login", params=in_address, headers={"Origin": ORIGIN}).status_code in (401, 403)
        assert sign_in(found, "ada", "not-her-password").status_code == 401
        answer = sign_in(found, "ada", "lovelace")
        assert (answer.status_code, answer.headers["location"]) == (303, "/")
        assert found.post("/topics/create", name="By_Ada", queues="1", permission="6").status_code == 303
        assert '"user": "ada"' in audit.read_text()
        pages = found.text("/settings") + found.frame("/").text
    seen = pages + audit.read_text() + "".join(f"{each.getMessage()} {each.exc_text}" for each in ours(caplog.records))
    assert "lovelace" not in seen
    assert "not-her-password" not in seen


def ours(records: list[logging.LogRecord]) -> list[logging.LogRecord]:
    """Those of the dashboard, not those of the client that asks it."""
    return [each for each in records if not each.name.startswith(("httpx", "httpcore"))]


def test_who_is_not_signed_in_sees_the_login_alone(rocket: Cluster, passwords: Path) -> None:
    with site(rocket.namesrv, password_file=passwords) as found:
        answer = found.client.get("/topics?q=x", follow_redirects=False)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/login?next=%2Ftopics%3Fq%3Dx"
        told = found.content("/topics")
        assert told.status_code == 401
        assert told.headers["hx-redirect"] == "/login"
        assert found.client.get("/topics?format=json").status_code == 401


def test_one_signs_in_and_out_and_gets_a_new_session(rocket: Cluster, passwords: Path) -> None:
    with site(rocket.namesrv, password_file=passwords) as found:
        assert sign_in(found, "ada", "wrong").status_code == 401
        before = found.client.cookies["bolide_session"]
        answer = sign_in(found, "ada", "lovelace", next="/topics")
        assert (answer.status_code, answer.headers["location"]) == (303, "/topics")
        assert found.client.cookies["bolide_session"] != before
        page = found.frame("/topics").text
        assert "ada" in page
        token = re.search(r'name="token" value="([^"]+)"', page)
        assert token is not None
        found.client.post("/logout", data={"token": token[1]}, headers={"Origin": ORIGIN})
        assert found.client.get("/topics", follow_redirects=False).status_code == 303


@pytest.mark.parametrize("back", ["https://evil.example/", "//evil.example", "/\\evil.example", "javascript:alert(1)"])
def test_no_link_leads_through_the_login_to_another_site(rocket: Cluster, passwords: Path, back: str) -> None:
    with site(rocket.namesrv, password_file=passwords) as found:
        assert sign_in(found, "ada", "lovelace", next=back).headers["location"] == "/"


def test_the_sixth_try_of_a_minute_is_not_looked_at(rocket: Cluster, passwords: Path) -> None:
    with site(rocket.namesrv, password_file=passwords) as found:
        told = [sign_in(found, "ada", "wrong").status_code for _ in range(TRIES_MAX)]
        assert told == [401] * TRIES_MAX
        assert sign_in(found, "ada", "lovelace").status_code == 429


def test_users_of_the_cluster_sign_in_and_the_broker_decides(guarded: Cluster) -> None:
    root = Credentials(access_key="root", secret_key="root-secret")
    with Admin(guarded.namesrv, credentials=root) as admin:
        admin.create_topic("Payroll", 1)
        admin.create_user("visitor", "visitor-secret")
    with site(guarded.namesrv, allows_changes=True) as found:
        assert found.client.get("/topics", follow_redirects=False).status_code == 303
        assert sign_in(found, "root", "wrong").status_code == 401
        assert sign_in(found, "root", "root-secret").status_code == 303
        assert {"topic": "Payroll"} in found.rows("/topics")
        with site(guarded.namesrv, allows_changes=True) as other:
            assert sign_in(other, "visitor", "visitor-secret").status_code == 303
            refused = other.content("/topics/Payroll")
            assert refused.status_code == 403
            assert "You may not see this" in refused.text
            assert "root-secret" not in refused.text + found.text("/topics/Payroll")


def test_it_listens_on_this_machine_alone_unless_told() -> None:
    assert dashboard.parser().parse_args([]).host == DashboardConfig(namesrv="x:1").host == "127.0.0.1"


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7"])
def test_a_cluster_that_does_not_answer_opens_no_door_to_others(host: str) -> None:
    config = DashboardConfig(namesrv="127.0.0.1:1", host=host)
    with pytest.raises(ConfigError, match="could not be asked"):
        asyncio.run(check_door(config, SystemClock()))
    with site("127.0.0.1:1", host=host) as found:  # it answered at the start, and is away now
        assert found.client.get("/topics", follow_redirects=False).headers["location"].startswith("/login")
        assert found.client.get("/settings?format=json").status_code == 401


@pytest.mark.parametrize("host", ["0.0.0.0", "192.168.1.7"])
def test_another_address_needs_a_login(rocket: Cluster, guarded: Cluster, passwords: Path, host: str) -> None:
    clock = SystemClock()
    with pytest.raises(ConfigError, match="--password-file"):
        asyncio.run(check_door(DashboardConfig(namesrv=rocket.namesrv, host=host), clock))
    asyncio.run(check_door(DashboardConfig(namesrv=rocket.namesrv, host=host, password_file=passwords), clock))
    asyncio.run(check_door(DashboardConfig(namesrv=guarded.namesrv, host=host), clock))
