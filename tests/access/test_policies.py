"""Which entry of a policy decides."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.access.policies import Policies, decide, merged, shown, without
from bolide.access.resources import Action, Kind, Need, parse_resource
from bolide.errors import Refusal
from bolide.protocol.bodies.access import AclEntry, AclPolicy

PATTERNS = ["*", "Topic:*", "Topic:a", "Topic:a*", "Topic:ab", "Topic:ab*", "Topic:abc", "Topic:b*", "Group:a"]
SEND = Need(Kind.TOPIC, "orders-eu", frozenset((Action.PUB,)))
HOST = "10.0.0.9"


def entry(resource: str, decision: str = "Allow", actions: str = "Pub", ips: str = "") -> AclEntry:
    return AclEntry(
        actions=actions.split(","), decision=decision, resource=resource, source_ips=ips.split(",") if ips else None
    )


def policies(*custom: AclEntry, default: tuple[AclEntry, ...] = ()) -> Policies:
    given = [AclPolicy(entries=list(custom), policy_type="Custom")] if custom else []
    given += [AclPolicy(entries=list(default), policy_type="Default")] if default else []
    return merged({}, given)


def allows(given: Policies, need: Need = SEND, host: str = HOST) -> bool:
    found = decide(given, need, host)
    return found is not None and found.is_allowed


def test_a_literal_allow_is_stronger_than_a_prefix_deny_and_the_longer_prefix_than_the_shorter() -> None:
    assert allows(policies(entry("Topic:orders-*", "Deny"), entry("Topic:orders-eu")))
    assert not allows(policies(entry("Topic:orders-*"), entry("Topic:orders-eu", "Deny")))
    assert allows(policies(entry("Topic:or*", "Deny"), entry("Topic:orders*")))
    assert allows(policies(entry("Topic:*", "Deny"), entry("Topic:o*")))
    assert allows(policies(entry("*", "Deny"), entry("Topic:*")))


def test_default_counts_only_where_nothing_custom_fits() -> None:
    assert not allows(policies(entry("Topic:orders-*", "Deny"), default=(entry("Topic:orders-eu"),)))
    assert allows(policies(entry("Topic:other", "Deny"), default=(entry("Topic:orders-eu"),)))


def test_nothing_fits_is_a_refusal_and_so_is_another_kind_action_or_place() -> None:
    assert decide({}, SEND, HOST) is None
    assert decide(policies(entry("Group:orders-eu")), SEND, HOST) is None
    assert decide(policies(entry("Topic:orders-eu", actions="Sub")), SEND, HOST) is None
    assert allows(policies(entry("Topic:orders-eu", actions="All")))


@pytest.mark.parametrize(
    ("ips", "host", "is_in"),
    [
        ("10.0.0.9", HOST, True),
        ("10.0.0.0/8", HOST, True),
        ("10.0.1.0/24", HOST, False),
        ("fd00::/8", "fd00::1", True),
        ("fd00::/8", HOST, False),
    ],
)
def test_addresses_and_networks_limit_an_entry(ips: str, host: str, is_in: bool) -> None:
    assert allows(policies(entry("Topic:orders-eu", ips=ips)), host=host) is is_in


@pytest.mark.parametrize(
    ("wrong", "remark"),
    [
        (entry("Topic"), "The resource is null."),
        (entry("Planet:x"), "The resource is null."),
        (entry("Topic:T", actions="Any"), "The actions can not be Any."),
        (entry("Topic:T", actions="Fly"), "The actions is empty."),
        (AclEntry(decision="Allow", resource="Topic:T"), "The actions is empty."),
        (entry("Topic:T", ips="10.0.0"), "The source ip is invalid."),
        (entry("Topic:T", decision="Perhaps"), "The decision is null or illegal."),
    ],
)
def test_a_wrong_entry_is_refused_in_rocketmqs_words(wrong: AclEntry, remark: str) -> None:
    with pytest.raises(Refusal) as refusal:
        policies(wrong)
    assert (refusal.value.code, refusal.value.remark) == (16, remark)


@given(
    st.lists(st.tuples(st.sampled_from(PATTERNS), st.booleans(), st.sampled_from(["Pub", "Sub", "All"])), max_size=8),
    st.sampled_from(["a", "ab", "abc", "b", "*", "a*"]),
)
def test_the_narrowest_of_all_that_fit_decides(rows: list[tuple[str, bool, str]], name: str) -> None:
    given = {pattern: (is_allowed, action) for pattern, is_allowed, action in rows}
    entries = [entry(pattern, "Allow" if given[pattern][0] else "Deny", given[pattern][1]) for pattern in given]
    found = decide(policies(*entries), Need(Kind.TOPIC, name, frozenset((Action.PUB,))), HOST)
    fitting = []
    for pattern, (is_allowed, action) in given.items():
        _, _, wanted = pattern.partition(":")
        is_it = wanted == name if wanted and not wanted.endswith("*") else name.startswith(wanted[:-1])
        if is_it and action != "Sub" and not pattern.startswith("Group"):
            order = (pattern == "*", wanted.endswith("*") + (wanted == "*"), -len(wanted))
            fitting.append((order, is_allowed))
    assert (None if found is None else found.is_allowed) == (min(fitting)[1] if fitting else None)


def test_entries_are_merged_and_taken_out_resource_by_resource() -> None:
    given = policies(entry("Topic:a"), entry("Topic:b"))
    given = merged(given, [AclPolicy(entries=[entry("Topic:a", "Deny", "Sub", "10.0.0.1")], policy_type=None)])
    told = shown("User:u", given)
    assert told.policies[0].entries == [entry("Topic:a", "Deny", "Sub", "10.0.0.1"), entry("Topic:b")]
    assert shown("User:u", without(given, None, "Topic:a")).policies[0].entries == [entry("Topic:b")]
    assert without(given, "Default", "Topic:a") == without(given, None, "Topic:none") == given


def test_resources_are_written_as_they_are_read() -> None:
    for text in ("Topic:T", "Topic:pre*", "Topic:*", "Group:g", "Cluster:c", "*"):
        assert str(parse_resource(text)) == text
