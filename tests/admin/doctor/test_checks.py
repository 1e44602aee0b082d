"""Each finding: with facts that have the fault, and with those that have not."""

from dataclasses import replace

import pytest

from bolide.admin.doctor.checks import examine, exit_code
from bolide.admin.doctor.facts import (
    BrokerFacts,
    Facts,
    GroupFacts,
    MachineFacts,
    NamesrvFacts,
    QueueFacts,
    ShapeFacts,
    TopicFacts,
)
from bolide.admin.doctor.findings import Finding, Severity

NOW = 1_700_000_000_000
SEATS = {("broker-a", 0): "10.0.0.1:10911", ("broker-b", 0): "10.0.0.2:10911"}
RUNTIME = {
    "brokerVersionDesc": "V5_5_0",
    "commitLogDiskRatio": "0.42",
    "putMessageDistributeTime": "[0ms]:90000 [0~10ms]:10 [200~500ms]:1",
    "bootTimestamp": str(NOW - 61_000),
    "runtime": "[ 0 days, 0 hours, 1 minutes, 1 seconds ]",
    "timerReadBehind": "0",
}
A = BrokerFacts(name="broker-a", broker_id=0, address="10.0.0.1:10911", runtime=RUNTIME, asked_ms=NOW)
B = replace(A, name="broker-b", address="10.0.0.2:10911")
N1 = NamesrvFacts(address="10.0.0.8:9876", brokers=SEATS, topics=frozenset({"Orders"}))
N2 = replace(N1, address="10.0.0.9:9876")
SHAPES = tuple(ShapeFacts(broker=name, read_count=4, write_count=4) for name in ("broker-a", "broker-b"))
ORDERS = TopicFacts(name="Orders", shapes=SHAPES)
Q0 = QueueFacts(topic="Orders", broker="broker-a", queue_id=0, end=9, committed=8, committed_before=5, first=0)
Q1 = replace(Q0, queue_id=1)
MEMBERS = (("10.0.0.4@1", "10.0.0.4:5000", 479), ("10.0.0.5@1", "10.0.0.5:5000", 479))
READERS = GroupFacts(name="readers", members=MEMBERS, queues=(Q0, Q1))
HEALTHY = Facts(
    now_ms=NOW, namesrvs=(N1, N2), brokers=(A, B), topics=(ORDERS,), groups=(READERS,), machine=MachineFacts()
)


def with_runtime(**changes: str) -> Facts:
    return replace(HEALTHY, brokers=(replace(A, runtime=RUNTIME | changes), B))


def with_settings(**changes: str) -> Facts:
    return replace(HEALTHY, brokers=(replace(A, settings={**A.settings, **changes}), B))


def with_group(**changes: object) -> Facts:
    return replace(HEALTHY, groups=(replace(READERS, **changes),))  # type: ignore[arg-type]


def with_shape(**changes: int) -> Facts:
    changed = replace(SHAPES[0], **changes)  # type: ignore[arg-type]
    return replace(HEALTHY, topics=(replace(ORDERS, shapes=(changed, SHAPES[1])),))


def with_machine(**changes: object) -> Facts:
    return replace(HEALTHY, machine=replace(MachineFacts(), **changes))  # type: ignore[arg-type]


FAULTS = {
    "D01 broker": (replace(HEALTHY, brokers=(replace(A, problem="does not answer"), B)), Severity.ERROR),
    "D01 name server": (replace(HEALTHY, namesrvs=(N1, NamesrvFacts(address="x:1", problem="away"))), Severity.ERROR),
    "D02": (replace(HEALTHY, topics=(TopicFacts(name="Order", why_absent="did you mean Orders?"),)), Severity.ERROR),
    "D03": (with_runtime(putMessageDistributeTime="[0ms]:900 [200~500ms]:40"), Severity.WARNING),
    "D04": (with_group(conflicts=("a wants A, b wants B",)), Severity.ERROR),
    "D05": (with_group(members=(MEMBERS[0], (MEMBERS[0][0], "10.0.0.6:1", 479))), Severity.ERROR),
    "D06": (with_group(queues=(replace(Q0, committed_before=8, waits_ms=60_000), Q1)), Severity.WARNING),
    "D07 full": (with_runtime(commitLogDiskRatio="0.95"), Severity.ERROR),
    "D07 nearly": (with_runtime(commitLogDiskRatio="0.80"), Severity.WARNING),
    "D08": (replace(HEALTHY, wrong_protocols={"10.0.0.8:9876": "HTTP/2"}), Severity.ERROR),
    "D09": (with_group(dead_count=3, dead_last_ms=NOW - 1000), Severity.WARNING),
    "D10": (replace(HEALTHY, topics=(replace(ORDERS, shapes=SHAPES[:1]),)), Severity.WARNING),
    "D11 brokers": (
        replace(HEALTHY, namesrvs=(N1, replace(N2, brokers={("broker-a", 0): SEATS["broker-a", 0]}))),
        Severity.WARNING,
    ),
    "D11 topics": (replace(HEALTHY, namesrvs=(N1, replace(N2, topics=frozenset()))), Severity.WARNING),
    "D12": (
        replace(HEALTHY, namesrvs=(N1, replace(N2, brokers={**SEATS, ("broker-a", 0): "10.0.0.7:10911"}))),
        Severity.ERROR,
    ),
    "D13": (replace(HEALTHY, brokers=(replace(A, problem="no such key", is_refused=True), B)), Severity.ERROR),
    "D14": (with_group(is_pulling=True), Severity.NOTE),
    "D15": (with_group(queues=(replace(Q0, committed=3, first=5), Q1)), Severity.ERROR),
    "D16": (with_runtime(timerReadBehind="60"), Severity.WARNING),
    "D17": (replace(HEALTHY, brokers=(replace(A, asked_ms=NOW + 9_000), B)), Severity.WARNING),
    "D18": (replace(HEALTHY, undecided_groups={"transfers": 4}), Severity.ERROR),
    "D19 unread": (with_shape(read_count=2), Severity.ERROR),
    "D19 closed": (with_shape(permission=4), Severity.WARNING),
    "D19 idle members": (
        with_group(members=tuple((f"{n}@1", f"10.0.1.{n}:1", 479) for n in range(9))),
        Severity.WARNING,
    ),
    "D20 files": (with_machine(open_files_max=1024), Severity.WARNING),
    "D20 maps": (with_machine(map_count_max=1024), Severity.WARNING),
    "D20 memory": (with_machine(memory_free=1 << 20), Severity.WARNING),
    "D20 sync": (with_machine(fsync_ms=900.0), Severity.WARNING),
    "D20 network": (with_machine(file_system="nfs4"), Severity.ERROR),
    "N02": (
        with_group(members=(), dead_count=1, dead_last_ms=NOW - 15 * 86_400_000, queues=(replace(Q0, committed=9),)),
        Severity.NOTE,
    ),
    "N03": (with_settings(autoCreateTopicEnable="true"), Severity.NOTE),
    "N04": (with_settings(authenticationEnabled="true"), Severity.NOTE),
    "N01": (with_runtime(brokerVersionDesc="V4_9_8"), Severity.NOTE),
}


def numbers(findings: list[Finding]) -> set[str]:
    return {finding.number for finding in findings}


def test_an_answer_that_came_late_is_no_clock_that_is_apart() -> None:
    late = replace(A, asked_ms=NOW + 9_000, took_ms=8_000)
    assert examine(replace(HEALTHY, brokers=(late, B))) == []


def test_a_queue_whose_member_has_not_told_yet_how_far_it_is_does_not_hang() -> None:
    """Clients tell every five seconds; a look lasts one."""
    assert examine(with_group(queues=(replace(Q0, committed_before=8, waits_ms=4_000), Q1))) == []


def test_a_healthy_cluster_has_no_finding() -> None:
    assert examine(HEALTHY) == []
    assert exit_code([], ()) == 0


@pytest.mark.feature("X33")
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_nothing_else(name: str) -> None:
    facts, severity = FAULTS[name]
    found = [finding for finding in examine(facts) if finding.number == name[:3]]
    assert {finding.severity for finding in found} == {severity}
    assert all(finding.seen and finding.why for finding in found)
    # One fault may be two findings: a broker at two places is also what name servers disagree on.
    allowed = {"N02": {"D09"}, "D12": {"D11"}, "D01": {"D11", "D10"}, "D13": {"D10"}}.get(name[:3], set())
    assert numbers(examine(facts)) - allowed == {name[:3]}


def test_the_exit_code_is_that_of_the_worst_and_says_if_something_was_not_seen() -> None:
    warning, error, note = (examine(FAULTS[name][0]) for name in ("D03", "D04", "N01"))
    assert [exit_code(found, ()) for found in (note, warning, error, warning + error)] == [0, 1, 2, 2]
    assert exit_code([], ("broker-a did not answer",)) == 3
    assert exit_code(error, ("broker-a did not answer",)) == 2
