"""Paths into JSON bodies: what is a path, and which bodies have it."""

import pytest

from bolide.admin.json_paths import parse_json_path

BODY = b'{"order": 7, "paid": true, "who": {"name": "Ada", "dog": null}, "lines": [{"sku": "B-1"}, {"sku": "B-2"}]}'


@pytest.mark.parametrize(
    "text",
    [
        *("$.order", "$.order=7", "$.order = 7.0", "$.paid=true", "$.who.name=Ada", "$.who.dog=null", "$.who.dog"),
        *("$.lines[0].sku=B-1", "$.lines[*].sku = B-2", "$.lines[1]", '$.lines[0]={"sku": "B-1"}'),
    ],
)
def test_a_body_has_what_a_path_leads_to(text: str) -> None:
    path = parse_json_path(text)
    assert path is not None
    assert path.holds(BODY)


@pytest.mark.parametrize(
    "text",
    [
        *("$.orders", "$.order=8", "$.order=true", "$.paid=1", "$.who.name=ada", "$.who.name.first", "$.lines[2]"),
        *("$.lines.sku", "$.lines[*].sku=B-3", "$.order[0]", "$.who.dog=Rex", "$[0]"),
    ],
)
def test_a_body_has_not_what_no_path_leads_to(text: str) -> None:
    path = parse_json_path(text)
    assert path is not None
    assert not path.holds(BODY)


@pytest.mark.parametrize("text", ["", "order", "$", "$ 5.20", "costs $.5", "$..order", "$.a[x]", "$.a b"])
def test_other_texts_are_no_path(text: str) -> None:
    assert parse_json_path(text) is None


@pytest.mark.parametrize("body", [b"", b"order", b'{"order": 7', b"[" * 100_000, b"\xff{", b'"order"'])
def test_a_body_that_is_no_json_has_nothing(body: bytes) -> None:
    path = parse_json_path("$.order")
    assert path is not None
    assert not path.holds(body)
