"""Hosts, origins, headers and tokens: a page of another site sees nothing and changes nothing."""

import re

import pytest
from starlette.datastructures import Headers

from bolide.dashboard.config import DashboardConfig
from bolide.dashboard.guard import BODY_SIZE_MAX, HEADERS, Guard
from bolide.dashboard.pages import all_actions
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
    headers = {"host": "mq.example.org", "origin": "https://mq.example.org", "content-length": "9"}
    assert found.problem("POST", Headers(headers)) is None
    # A proxy may name the host that it asks; the browser's origin stays.
    assert found.problem("POST", Headers({**headers, "host": "127.0.0.1:8082"})) is None
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
    problem = guard().problem("POST", Headers({"host": "127.0.0.1:8082", "content-length": "9", **headers}))
    assert (problem is None) == is_allowed


def test_a_foreign_host_gets_no_page_at_all(pages: Site) -> None:
    answer = pages.client.get("/", headers={"Host": "evil.example"})
    assert answer.status_code == 421
    assert "evil.example" in answer.text


@pytest.mark.parametrize(
    ("length", "status"), [(None, 411), ("", 411), ("-1", 411), ("9" * 40, 413), (str(BODY_SIZE_MAX + 1), 413)]
)
def test_a_form_that_is_too_large_or_does_not_say_how_large_it_is_is_not_read(length: str | None, status: int) -> None:
    headers = {"host": "127.0.0.1:8082", "origin": ORIGIN} | ({} if length is None else {"content-length": length})
    problem = guard().problem("POST", Headers(headers))
    assert problem is not None
    assert problem[0] == status


def test_every_answer_says_what_browsers_may_do_with_it(pages: Site) -> None:
    foreign = {"Host": "evil.example"}
    answers = [pages.client.get(path) for path in ("/", "/groups?format=json", "/static/dashboard.js", "/nowhere")]
    answers += [pages.client.get("/login"), pages.client.get("/", headers=foreign), pages.client.post("/send")]
    answers += [pages.client.get("/body/none"), pages.client.get("/dead-jobs/none/none")]
    for answer in answers:
        assert {name: answer.headers.get(name) for name in HEADERS} == HEADERS, answer.url


def test_the_content_policy_allows_no_script_in_a_page_no_eval_no_frame_and_no_other_host() -> None:
    policy = dict(part.strip().partition(" ")[::2] for part in HEADERS["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'self'"
    assert policy["frame-ancestors"] == "'none'"
    assert set(policy.values()) == {"'self'", "'none'"}, "neither unsafe-inline nor unsafe-eval, nor a host"
    assert not {"script-src", "style-src", "connect-src", "img-src"} & set(policy)
    assert (HEADERS["X-Content-Type-Options"], HEADERS["Referrer-Policy"]) == ("nosniff", "same-origin")


ACTIONS = [re.sub(r"\{[^}]*\}", "none", action.path) for action in all_actions()]


@pytest.mark.parametrize("path", ACTIONS)
def test_no_change_is_made_by_get_or_without_token_or_session_or_from_elsewhere(changing: Site, path: str) -> None:
    post, origin = changing.client.post, {"Origin": ORIGIN}
    assert post(path, data={"token": "x"}, headers=origin).status_code == 403
    assert post(path, data={"token": changing.token()}, headers={"Origin": "https://evil.example"}).status_code == 403
    kept = dict(changing.client.cookies)
    token = changing.token()
    changing.client.cookies.clear()
    try:
        assert post(path, data={"token": token}, headers=origin).status_code == 403
    finally:
        changing.client.cookies.clear()
        changing.client.cookies.update(kept)
    assert changing.client.get(path, follow_redirects=False).status_code in (200, 405)  # a page with the form, or none


@pytest.mark.parametrize("path", ACTIONS)
def test_read_only_no_change_is_taken(pages: Site, path: str) -> None:
    answer = pages.client.post(path, data={"token": "x"}, headers={"Origin": ORIGIN})
    assert answer.status_code == 403
    assert "--allow-changes" in answer.text


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
