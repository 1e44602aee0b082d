"""Namespaces of the first kind are prefixes of names."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.protocol.namespace import with_namespace, without_namespace

names = st.text("abcXYZ_-", min_size=1, max_size=12)


@pytest.mark.parametrize(
    ("plain", "inside"),
    [("orders", "ns%orders"), ("%RETRY%group", "%RETRY%ns%group"), ("%DLQ%group", "%DLQ%ns%group")],
)
def test_the_namespace_stands_before_the_name_and_after_the_prefix(plain: str, inside: str) -> None:
    assert with_namespace("ns", plain) == inside
    assert with_namespace("ns", inside) == inside
    assert without_namespace("ns", inside) == plain
    assert without_namespace("ns", plain) == plain


@pytest.mark.parametrize("name", ["TBW102", "RMQ_SYS_TRACE_TOPIC", "rmq_sys_x", "CID_RMQ_SYS_TRANS", ""])
def test_what_rocketmq_keeps_for_itself_has_no_namespace(name: str) -> None:
    assert with_namespace("ns", name) == name


def test_no_namespace_changes_nothing_and_another_s_stays() -> None:
    assert with_namespace("", "orders") == without_namespace("", "orders") == "orders"
    assert without_namespace("other", "ns%orders") == "ns%orders"
    assert without_namespace("", "ns%orders") == "ns%orders"


@given(names, names, st.sampled_from(["", "%RETRY%", "%DLQ%"]))
def test_names_come_back_as_they_were(namespace: str, name: str, prefix: str) -> None:
    assert without_namespace(namespace, with_namespace(namespace, prefix + name)) == prefix + name
