"""The box: what a text may mean."""

import pytest

from bolide.dashboard.pages.search import meanings
from bolide.dashboard.walk import GroupLook, Snapshot
from tests.dashboard.site import Site

SEEN = Snapshot(
    at_ms=1,
    configs={"Orders": {}, "OrdersLate": {}, "%RETRY%orders-cg": {}},
    groups={"orders-cg": GroupLook("orders-cg", 0, 0, 0, 0)},
)


@pytest.mark.parametrize(
    ("text", "addresses"),
    [
        ("orders", ["/topics/Orders", "/groups/orders-cg", "/topics/OrdersLate", "/topics/%25RETRY%25orders-cg"]),
        ("Late", ["/topics/OrdersLate"]),
        ("127.0.0.1:10911", ["/clients?q=127.0.0.1%3A10911"]),
        ("0A" * 16, [f"/messages/{'0A' * 16}"]),
        ("nothing", []),
    ],
)
def test_a_text_means_names_that_begin_with_it_first(text: str, addresses: list[str]) -> None:
    assert [each.address for each in meanings(text, SEEN)] == addresses


def test_what_is_named_exactly_is_opened(pages: Site) -> None:
    pages.wait_for("/topics", lambda text: ">SELF_TEST_TOPIC<" in text, q="SELF_TEST", all="1")
    answer = pages.client.get("/go?q=SELF_TEST_TOPIC", follow_redirects=False)
    assert answer.headers["location"] == "/topics/SELF_TEST_TOPIC"
    assert pages.client.get("/go?q=no%3Csuch", follow_redirects=False).headers["location"] == "/search?q=no%3Csuch"
