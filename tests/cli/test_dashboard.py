"""`bolide dashboard` and `bolide up --dashboard` as processes: how they start, who gets in, how they end."""

import re
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from bolide import Admin
from bolide.cli import dashboard
from bolide.client import profiles
from bolide.errors import ConfigError
from bolide.testing import cluster
from tests.cli.processes import LIMIT_S, bolide, wait_for
from tests.e2e.up import ANY_DISK, FREE_PORTS, SMALL, Up, running


@pytest.fixture(scope="module")
def namesrv() -> Iterator[str]:
    with cluster() as found:
        yield found.namesrv


def browser(url: str) -> httpx2.Client:
    """One with a session, who comes from our own pages."""
    return httpx2.Client(base_url=url, headers={"Origin": url, "Sec-Fetch-Site": "same-origin"}, timeout=LIMIT_S)


def content(client: httpx2.Client, path: str) -> str:
    answer = client.get(path, headers={"HX-Request": "true"})
    assert answer.status_code == 200, answer.text
    return answer.text


def token(client: httpx2.Client, path: str) -> str:
    found = re.search(r'name="token" value="([^"]+)"', client.get(path, headers={"HX-Request": "true"}).text)
    assert found is not None
    return found[1]


def url_of(up: Up) -> str:
    return str(up.ready["dashboard"])


def test_it_says_where_it_is_answers_and_ends_with_a_signal(tmp_path: Path, namesrv: str) -> None:
    with running(tmp_path, "dashboard", "-n", namesrv, "--port", "0") as up:
        with browser(url_of(up)) as client:
            assert "Bolide" in client.get("/").text
            assert [row["broker"] for row in client.get("/?format=json").json()["brokers"]] == ["broker-0"]
            assert "Create…" not in content(client, "/topics")
            assert client.post("/topics/create", data={"name": "Made"}).status_code == 403
        code, said, logged = up.stop()
    assert (code, "Traceback" in logged) == (0, False)
    assert f"dashboard of {namesrv} is at {url_of(up)} (read only)" in said
    assert not up.ready_path.exists()


def test_with_allow_changes_a_topic_is_made_and_the_audit_file_has_its_line(tmp_path: Path, namesrv: str) -> None:
    audit = tmp_path / "changes.jsonl"
    options = ("--port", "0", "--allow-changes", "--audit-file", str(audit))
    with running(tmp_path, "dashboard", "-n", namesrv, *options) as up, browser(url_of(up)) as client:
        form = {"token": token(client, "/topics/create"), "name": "Made", "queues": "2", "permission": "6"}
        assert client.post("/topics/create", data=form).status_code == 303
        with Admin(namesrv) as admin:
            assert "Made" in admin.topics()
        assert "create topic" in audit.read_text()


def test_a_port_in_use_is_told_with_the_option_that_helps(tmp_path: Path, namesrv: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        alone = bolide(tmp_path, "dashboard", "-n", namesrv, "--port", port)
        beside = bolide(tmp_path, "up", *FREE_PORTS, *SMALL, "--dashboard", port)
    assert (alone.returncode, beside.returncode) == (2, 2)
    assert "choose another port with --port, or --port 0 for a free one" in alone.stderr
    assert "choose another port with --dashboard, or --dashboard 0 for a free one" in beside.stderr
    assert "Traceback" not in alone.stderr + beside.stderr


def test_another_address_is_refused_without_a_login_and_taken_with_one(tmp_path: Path, namesrv: str) -> None:
    refused = bolide(tmp_path, "dashboard", "-n", namesrv, "--port", "0", "--host", "0.0.0.0")
    assert refused.returncode == 2
    assert "give --password-file, or listen on 127.0.0.1" in refused.stderr
    passwords = tmp_path / "passwords"
    passwords.write_text("ada:lovelace\n")
    passwords.chmod(0o600)
    options = ("--port", "0", "--host", "0.0.0.0", "--password-file", str(passwords))
    with running(tmp_path, "dashboard", "-n", namesrv, *options) as up, browser(url_of(up)) as client:
        assert client.get("/topics").headers["location"].startswith("/login")


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        (("--port", "70000"), "must be 0 to 65535"),
        (("--public-url", "mq.example.org"), "must be a URL like https://mq.example.org"),
        (("--password-file", "/no/such/file"), "/no/such/file"),
        (("--log-level", "loud"), "must be debug, info, warning or error"),
    ],
)
def test_a_mistake_is_one_sentence(tmp_path: Path, namesrv: str, options: tuple[str, ...], sentence: str) -> None:
    done = bolide(tmp_path, "dashboard", "-n", namesrv, "--port", "0", *options)
    assert done.returncode == 2
    (error,) = done.stderr.splitlines()
    assert sentence in error


def test_without_its_packages_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dashboard, "PACKAGES", (*sys.builtin_module_names[:1], "no_such_package"))
    with pytest.raises(ConfigError, match=r"pip install 'bolide\[dashboard\]'"):
        dashboard.demand_packages()


def test_beside_bolide_up_it_may_change_things_and_ends_with_it(tmp_path: Path) -> None:
    with running(tmp_path, "up", *FREE_PORTS, *SMALL, "--dashboard", "0") as up:
        with browser(url_of(up)) as client:
            assert "Create…" in content(client, "/topics")
            form = {"token": token(client, "/send"), "topic": "Hello", "body": "by hand", "times": "1"}
            assert client.post("/send", data=form).status_code == 200
        code, said, _ = up.stop()
    assert code == 0
    assert f"dashboard         {url_of(up)}" in said
    assert (tmp_path / "bolide-data" / "dashboard-changes.jsonl").read_text().count("\n") == 1
    with pytest.raises(httpx2.ConnectError):
        httpx2.get(url_of(up))


def test_beside_a_secured_one_its_administrator_signs_in(tmp_path: Path) -> None:
    home = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "BOLIDE_PROFILE": ""}
    with running(tmp_path, "up", "--secure", *FREE_PORTS, *SMALL, "--dashboard", "0", environment=home) as up:
        own = profiles.read_profile(tmp_path / "config" / "bolide" / "default.conf")
        with browser(url_of(up)) as client:
            assert client.get("/topics?format=json").status_code == 401
            form = {"token": token(client, "/login"), "user": own["accessKey"], "password": "wrong", "next": "/access"}
            assert client.post("/login", data=form).status_code == 401
            form |= {"token": token(client, "/login"), "password": own["secretKey"]}
            assert client.post("/login", data=form).headers["location"] == "/access"
            page = content(client, "/access")
            assert own["accessKey"] in page
            assert own["secretKey"] not in page
        log = (tmp_path / "bolide-data" / "logs" / "dashboard.log").read_text()
    assert own["secretKey"] not in log


def test_beside_replicas_the_overview_shows_them_and_promotes_one(tmp_path: Path) -> None:
    with running(tmp_path, "up", "--replicas", "3", *FREE_PORTS, *ANY_DISK, "--dashboard", "0") as up:
        with browser(url_of(up)) as client:

            def roles() -> dict[str, str]:
                return {row["address"]: row.get("role", "") for row in client.get("/?format=json").json()["brokers"]}

            wait_for(lambda: sorted(roles().values()) == ["master", "slave", "slave"])
            wait_for(lambda: content(client, "/").count("Promote to master") == 2)
            page = content(client, "/")
            action, number = re.findall(r'action="(/brokers/[^"]+)".*?name="id" value="(\d+)"', page)[0]
            next_master = {str(row["id"]): row["address"] for row in up.ready["brokers"]}[number]
            answer = client.post(action, data={"token": token(client, "/"), "id": number})
            assert answer.status_code == 303, answer.text
            wait_for(lambda: roles().get(next_master) == "master")
        assert up.stop()[0] == 0
