"""The sections beside every page: their counts come without the overview having been opened."""

import re

from bolide import Admin, Consumer
from bolide.testing import cluster
from tests.cli.processes import wait_for
from tests.dashboard.letters import bury
from tests.dashboard.site import Site, site

COUNT = re.compile(r'<a href="([^"]+)"[^>]*>[^<]*<span class="count" title="([^"]+)">(\d+)<')
TORN = "groups whose members subscribe differently"


def counted(text: str) -> dict[str, tuple[str, str]]:
    return {path: (why, number) for path, why, number in COUNT.findall(text)}


def is_torn(admin: Admin) -> bool:
    members = admin.members("torn-cg")
    return members is not None and bool(members.bolide_conflicts)


def test_a_page_that_is_open_hears_what_calls_for_attention_though_nobody_opened_the_overview() -> None:
    with cluster() as rocket:
        rocket.create_topic("Torn", 2)
        bury(rocket.namesrv, "buried-cg", "Torn", {"k": "no money"})
        with (
            Consumer("torn-cg", {"Torn": "eu"}, rocket.namesrv),
            Consumer("torn-cg", {"Torn": "us"}, rocket.namesrv),
            Admin(rocket.namesrv) as admin,
            site(rocket.namesrv) as pages,
        ):
            wait_for(lambda: is_torn(admin))  # the doctor looks once a minute, so he has to see it at once
            assert 'hx-get="/menu?at=/messages"' in pages.frame("/messages").text
            text = pages.wait_for("/menu", lambda text: {"/", "/groups", "/dead"} <= counted(text).keys())
            assert counted(text)["/groups"][0] == TORN
            assert counted(text)["/dead"] == ("groups with dead letters of the last day", "1")
            assert pages.rows("/menu")["/dead"] == {"number": 1, "why": "groups with dead letters of the last day"}
            assert counted(pages.frame("/messages").text) == counted(text), "and the next page has them at once"


def test_the_section_that_is_open_stays_marked(pages: Site) -> None:
    marked = re.findall(r'<a href="([^"]+)" aria-current="page"', pages.text("/menu", at="/topics/Some"))
    assert marked == ["/topics"]
    assert '<a href="/" aria-current="page"' in pages.text("/menu", at="/")
