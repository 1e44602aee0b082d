"""Hosts, origins, headers and tokens: a page of another site sees nothing and changes nothing."""

import pytest
from starlette.datastructures import Headers

from bolide.dashboard.config import DashboardConfig
from bolide.dashboard.guard import HEADERS, Guard
from bolide.testing.blocking import Cluster
from tests.dashboard.site import ORIGIN, Site, site


def guard(**settings: object) -> Guard:
    async def nobody(scope: object, receive: object, send: object) -> None: ...

    return Guard(nobody, DashboardConfig(namesrv="127.0.0.1:9876", **settings))  # type: ignore[arg-type]


@pytest.mark.parametrize("host", ["127.0.0.1:8082", "localhost:8082", "[::1]:8082", "10.0.0.7:8082"])
def test_a_number_and_localhost_are_served(host: str) -> None:
    assert guard().serves(host)


@pytest.mark.parametrize("host", ["", "evil.example", "localhost.evil.example", "127.0.0.1.evil.example:8082", "[::1"])
def test_a_name_that_is_not_ours_is_not_served(host: str) -> None:
    assert not guard().serves(host) or host == "[::1"


def test_the_public_name_is_served_and_its_origin_may_change_things() -> None:
    found = guard(public_url="https://mq.example.org")
    assert found.serves("mq.example.org")
    headers = Headers({"host": "mq.example.org", "origin": "https://mq.example.org"})
    assert found.problem("POST", headers) is None
    assert found.problem("POST", Headers({"host": "mq.example.org", "origin": "https://evil.example"})) is not None


@pytest.mark.parametrize(
    ("headers", "is_allowed"),
    [
        ({"origin": ORIGIN}, True),
        ({"sec-fetch-site": "same-origin"}, True),
        ({"origin": ORIGIN, "sec-fetch-site": "same-origin"}, True),
        ({}, False),
        ({"origin": "null"}, False),
        ({"origin": "http://127.0.0.1:9999"}, False),
        ({"origin": "http://localhost:8082"}, False),
        ({"origin": ORIGIN, "sec-fetch-site": "cross-site"}, False),
        ({"origin": ORIGIN, "sec-fetch-site": "same-site"}, False),
        ({"sec-fetch-site": "none"}, False),
    ],
)
def test_only_a_page_of_ours_may_change_something(headers: dict[str, str], is_allowed: bool) -> None:
    problem = guard().problem("POST", Headers({"host": "127.0.0.1:8082", **headers}))
    assert (problem is None) == is_allowed


def test_a_foreign_host_gets_no_page_at_all(pages: Site) -> None:
    answer = pages.client.get("/", headers={"Host": "evil.example"})
    assert answer.status_code == 421
    assert "evil.example" in answer.text


def test_every_answer_says_what_browsers_may_do_with_it(pages: Site) -> None:
    for path in ("/", "/groups?format=json", "/static/dashboard.js", "/nowhere", "/login"):
        answer = pages.client.get(path)
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, path


def test_a_form_of_another_session_changes_nothing(rocket: Cluster, changing: Site) -> None:
    with site(rocket.namesrv, allows_changes=True) as other:
        stolen = other.token()
    answer = changing.post("/topics/create", name="Stolen", queues="1", permission="6", token=stolen)
    assert answer.status_code == 403
    assert "Stolen" not in str(changing.rows("/topics"))


def test_a_form_that_another_origin_sends_changes_nothing(changing: Site) -> None:
    form = {"name": "Foreign", "queues": "1", "permission": "6", "token": changing.token()}
    for headers in ({"Origin": "https://evil.example"}, {"Sec-Fetch-Site": "cross-site"}, {}):
        answer = changing.client.post("/topics/create", data=form, headers=headers, follow_redirects=False)
        assert answer.status_code == 403
    assert "Foreign" not in str(changing.rows("/topics"))


def test_without_allow_changes_no_form_is_taken_and_no_button_is_shown(pages: Site) -> None:
    headers = {"Origin": ORIGIN}
    assert pages.client.post("/topics/create", data={"name": "No"}, headers=headers).status_code == 403
    assert "Create…" not in pages.text("/topics")
    assert "<form" not in pages.text("/topics/create")
