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
    SlaveFacts,
    TopicFacts,
)
from bolide.admin.doctor.findings import Finding, Severity

NOW = 1_700_000_000_000
DAY_MS = 86_400_000
SEATS = {("broker-a", 0): "10.0.0.1:10911", ("broker-b", 0): "10.0.0.2:10911"}
RUNTIME = {
    "brokerVersionDesc": "V5_5_0",
    "commitLogDiskRatio": "0.42",
    "putMessageDistributeTime": "[0ms]:90000 [0~10ms]:10 [200~500ms]:1",
    "bootTimestamp": str(NOW - 61_000),
    "runtime": "[ 0 days, 0 hours, 1 minutes, 1 seconds ]",
    "timerReadBehind": "0",
}
# A quarter of the disk in the last day: full before the oldest file is three days old.
GROWING = {
    "commitLogDirCapacity": "Total : 100.0 GiB, Free : 40.0 GiB.",
    "commitLogMinOffset": "0",
    "commitLogMaxOffset": str(25 << 30),
    "earliestMessageTimeStamp": str(NOW - DAY_MS),
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


def with_slaves(*slaves: SlaveFacts) -> Facts:
    """One slave is registered."""
    slave = replace(A, broker_id=1, address="10.0.0.3:10911")
    return replace(HEALTHY, brokers=(replace(A, slaves=slaves), slave, B))


FAULTS = {
    "D01 broker": (replace(HEALTHY, brokers=(replace(A, problem="does not answer"), B)), Severity.ERROR),
    "D01 name server": (replace(HEALTHY, namesrvs=(N1, NamesrvFacts(address="x:1", problem="away"))), Severity.ERROR),
    "D02": (replace(HEALTHY, topics=(TopicFacts(name="Order", why_absent="did you mean Orders?"),)), Severity.ERROR),
    "D03": (with_runtime(putMessageDistributeTime="[0ms]:900 [200~500ms]:40"), Severity.WARNING),
    "D03 waiting": (with_runtime(sendThreadPoolQueueHeadWaitTimeMills="200"), Severity.WARNING),
    "D04": (with_group(conflicts=("a wants A, b wants B",)), Severity.ERROR),
    "D05": (with_group(members=(MEMBERS[0], (MEMBERS[0][0], "10.0.0.6:1", 479))), Severity.ERROR),
    "D06": (with_group(queues=(replace(Q0, committed_before=8, waits_ms=60_000), Q1)), Severity.WARNING),
    "D07 full": (with_runtime(commitLogDiskRatio="0.95"), Severity.ERROR),
    "D07 nearly": (with_runtime(commitLogDiskRatio="0.80"), Severity.WARNING),
    "D07 soon": (with_runtime(**GROWING), Severity.WARNING),
    "D08": (replace(HEALTHY, wrong_protocols={"10.0.0.8:9876": "HTTP/2"}), Severity.ERROR),
    "D09 new": (with_group(dead_count=3, dead_last_ms=NOW - 1000), Severity.WARNING),
    "D09 many": (with_group(dead_count=300, dead_last_ms=NOW - 9 * DAY_MS), Severity.WARNING),
    "D09 old": (with_group(dead_count=3, dead_last_ms=NOW - 9 * DAY_MS), Severity.NOTE),
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
    "D12 one name server": (
        replace(HEALTHY, rivals={("broker-a", 0): ("10.0.0.1:10911", "10.0.0.7:10911")}),
        Severity.ERROR,
    ),
    "D16 timer": (with_runtime(timerReadBehind="60"), Severity.WARNING),
    "D16 levels": (replace(HEALTHY, brokers=(replace(A, delayed_due_ms=NOW - 60_000), B)), Severity.WARNING),
    "D16 off": (with_settings(timerWheelEnable="false"), Severity.NOTE),
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
    "D21 refused": (replace(HEALTHY, brokers=(replace(A, sent_ms=3, send_problem="no"), B)), Severity.ERROR),
    "D21 slow": (replace(HEALTHY, brokers=(replace(A, sent_ms=2_000), B)), Severity.WARNING),
    "N02": (with_group(members=(), last_read_ms=NOW - 15 * DAY_MS), Severity.NOTE),
    "N03": (with_settings(autoCreateTopicEnable="true"), Severity.NOTE),
    "N04": (with_settings(authenticationEnabled="true"), Severity.NOTE),
    "N05": (with_settings(traceTopicEnable="false"), Severity.NOTE),
    "N06 away": (with_slaves(), Severity.NOTE),
    "N06 behind": (with_slaves(SlaveFacts(address="10.0.0.3:1", behind=1 << 30)), Severity.NOTE),
    "N06 awaited": (
        replace(HEALTHY, brokers=(replace(A, settings={"brokerRole": "SYNC_MASTER"}, slaves=()), B)),
        Severity.NOTE,
    ),
    "N07": (replace(HEALTHY, brokers=(replace(A, default_user="rocketmq2"), B)), Severity.NOTE),
    "N01": (with_runtime(brokerVersionDesc="V4_9_8"), Severity.NOTE),
}


def numbers(findings: list[Finding]) -> set[str]:
    return {finding.number for finding in findings}


def test_an_answer_that_came_late_is_no_clock_that_is_apart() -> None:
    late = replace(A, asked_ms=NOW + 9_000, took_ms=8_000)
    assert examine(replace(HEALTHY, brokers=(late, B))) == []


def test_a_clock_that_is_behind_makes_no_delay_late() -> None:
    """What waits is due by the broker's clock."""
    behind = {**RUNTIME, "bootTimestamp": str(NOW - 121_000)}
    found = examine(replace(HEALTHY, brokers=(replace(A, runtime=behind, delayed_due_ms=NOW - 55_000), B)))
    assert numbers(found) == {"D17"}


def test_a_queue_whose_member_has_not_told_yet_how_far_it_is_does_not_hang() -> None:
    """Clients tell every five seconds; a look lasts one."""
    assert examine(with_group(queues=(replace(Q0, committed_before=8, waits_ms=4_000), Q1))) == []


def test_a_healthy_cluster_has_no_finding() -> None:
    assert examine(HEALTHY) == []
    assert examine(replace(HEALTHY, brokers=(replace(A, delayed_due_ms=NOW - 5_000, sent_ms=12), B))) == []
    assert examine(with_slaves(SlaveFacts(address="10.0.0.3:1", behind=1_000))) == []
    assert examine(with_group(members=(), last_read_ms=NOW - DAY_MS)) == []
    assert examine(with_runtime(sendThreadPoolQueueHeadWaitTimeMills="199")) == []
    one_for_each_queue = tuple((f"{n}@1", f"10.0.1.{n}:1", 479) for n in range(8))
    assert examine(with_group(members=one_for_each_queue)) == []
    traced = replace(N1, topics=N1.topics | {"RMQ_SYS_TRACE_TOPIC"})
    assert (
        examine(replace(with_settings(traceTopicEnable="false"), namesrvs=(traced, replace(traced, address="x:1"))))
        == []
    )
    assert exit_code([], ()) == 0


@pytest.mark.feature("X33")
def test_a_group_whose_queues_all_stand_still_is_slow_and_none_of_them_is_stuck() -> None:
    still = [replace(each, committed_before=each.committed, waits_ms=60_000) for each in (Q0, Q1)]
    assert not examine(with_group(queues=tuple(still)))
    assert not examine(with_group(members=(), queues=(still[0], Q1))), "nobody is there who could hang"


@pytest.mark.feature("X33")
@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_found_and_nothing_else(name: str) -> None:
    facts, severity = FAULTS[name]
    found = [finding for finding in examine(facts) if finding.number == name[:3]]
    assert {finding.severity for finding in found} == {severity}
    assert all(finding.seen and finding.why for finding in found)
    # One fault may be two findings: a broker at two places is also what name servers disagree on.
    allowed = {"D12": {"D11"}, "D01": {"D11", "D10"}, "D13": {"D10"}}.get(name[:3], set())
    assert numbers(examine(facts)) - allowed == {name[:3]}


@pytest.mark.parametrize(
    ("changes", "settings", "words"),
    [
        ({}, {}, "full in 1.2 days"),
        ({}, {"fileReservedTime": "48"}, None),  # files go before that
        ({"earliestMessageTimeStamp": str(NOW - 4 * DAY_MS)}, {}, None),
        ({"earliestMessageTimeStamp": "-1"}, {}, None),
        ({"commitLogDirCapacity": "unknown"}, {}, None),
        ({}, {"diskSpaceWarningLevelRatio": "70"}, "full in 0.4 days"),
        (
            {"commitLogDiskRatio": "0.99"},
            {"diskSpaceWarningLevelRatio": "100", "diskMaxUsedSpaceRatio": "100"},
            "1.6 days",
        ),
    ],
)
def test_days_are_counted_to_the_limit_unless_old_files_go_before(
    changes: dict[str, str], settings: dict[str, str], words: str | None
) -> None:
    broker = replace(A, runtime=RUNTIME | GROWING | changes, settings=settings)
    found = [each.seen for each in examine(replace(HEALTHY, brokers=(broker, B))) if each.number == "D07"]
    assert (found == []) if words is None else (words in found[0])


def test_a_topic_need_not_be_in_another_cluster() -> None:
    other = replace(B, cluster="elsewhere")
    apart = replace(HEALTHY, brokers=(A, other), topics=(replace(ORDERS, shapes=SHAPES[:1]),))
    assert examine(apart) == []


def test_the_exit_code_is_that_of_the_worst_and_says_if_something_was_not_seen() -> None:
    warning, error, note = (examine(FAULTS[name][0]) for name in ("D03", "D04", "N01"))
    assert [exit_code(found, ()) for found in (note, warning, error, warning + error)] == [0, 1, 2, 2]
    assert exit_code([], ("broker-a did not answer",)) == 3
    assert exit_code(error, ("broker-a did not answer",)) == 2
