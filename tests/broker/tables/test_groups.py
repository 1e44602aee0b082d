"""The table of groups: what is born in it, what first use may add, what is forbidden, and the file it is kept in."""

import json
import shutil
from pathlib import Path

import pytest

from bolide.broker.tables.groups import BUILT_IN_GROUPS, READ_BIT
from bolide.model.names import group_problem
from bolide.protocol.bodies.groups import GroupConfig, GrowingDelays, RetryKind, RetryPolicy
from tests.broker.open_tables import tables
from tests.remoting.loops import virtual_time

JAVA = Path(__file__).parent / "java"
DEFAULTS = {
    "attributes": {},
    "brokerId": 0,
    "consumeBroadcastEnable": True,
    "consumeEnable": True,
    "consumeFromMinEnable": True,
    "consumeMessageOrderly": False,
    "consumeTimeoutMinute": 15,
    "groupRetryPolicy": {"type": "CUSTOMIZED"},
    "groupSysFlag": 0,
    "notifyConsumerIdsChangedEnable": True,
    "retryMaxTimes": 16,
    "retryQueueNums": 1,
    "whichBrokerWhenConsumeSlowly": 1,
}


def on_disk(root: Path) -> dict[str, dict[str, object]]:
    return json.loads((root / "config" / "subscriptionGroup.json").read_text())


@virtual_time
async def test_a_broker_is_born_with_rocketmqs_groups(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        assert set(kept.groups.table) == set(BUILT_IN_GROUPS)
    assert len(on_disk(tmp_path)["subscriptionGroupTable"]) == 8


@pytest.mark.feature("F014")
@virtual_time
async def test_first_use_makes_a_group_with_rocketmqs_defaults_and_it_is_on_disk(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        assert kept.groups.get("cg") is None
        made = kept.groups.find("cg")
        assert kept.groups.find("cg") is made is kept.groups.get("cg")
    assert on_disk(tmp_path)["subscriptionGroupTable"]["cg"] == DEFAULTS | {"groupName": "cg"}


@virtual_time
async def test_with_creation_off_only_rocketmqs_own_groups_are_made(tmp_path: Path) -> None:
    async with tables(tmp_path, autoCreateSubscriptionGroup="false") as kept:
        assert kept.groups.find("cg") is None
        assert kept.groups.find("CID_RMQ_SYS_X") is not None
        kept.groups.update(GroupConfig(group_name="cg"))
        assert kept.groups.find("cg") is not None


@virtual_time
async def test_first_use_makes_no_group_with_a_bad_name(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        version = kept.groups.version
        for name in ("", "a.b", "g" * 121, "a b"):
            assert kept.groups.find(name) is None
            assert group_problem(name) is not None
        assert kept.groups.version == version
        assert kept.groups.find("g" * 120) is not None


@virtual_time
async def test_changes_are_versions_saves_and_words_to_listeners(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        told: list[list[str]] = []
        kept.groups.listen(told.append)
        counter = kept.groups.version.counter
        policy = RetryPolicy(type=RetryKind.EXPONENTIAL, exponential_retry_policy=GrowingDelays(initial=1000))
        kept.groups.update(GroupConfig(group_name="a", retry_max_times=3, group_retry_policy=policy))
        kept.groups.update(GroupConfig(group_name="a", retry_max_times=3, group_retry_policy=policy))
        kept.groups.update_all([GroupConfig(group_name="b"), GroupConfig(group_name="c")])
        kept.groups.remove("b")
        kept.groups.remove("b")
        assert told == [["a"], ["b", "c"], ["b"]]
        assert kept.groups.version.counter == counter + 3
        table = kept.groups.table
    async with tables(tmp_path) as kept:
        assert kept.groups.table == table


@pytest.mark.feature("X38")
@virtual_time
async def test_what_is_forbidden_survives_a_restart_and_ends_with_the_group(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        kept.groups.find("cg")
        kept.groups.forbid("cg", "T", READ_BIT, True)
        assert kept.groups.is_forbidden("cg", "T", READ_BIT)
        assert not kept.groups.is_forbidden("cg", "T", 1)
        assert not kept.groups.is_forbidden("cg", "U", READ_BIT)
        assert not kept.groups.is_forbidden("other", "T", READ_BIT)
    assert on_disk(tmp_path)["forbiddenTable"] == {"cg": {"T": 4}}
    async with tables(tmp_path) as kept:
        assert kept.groups.is_forbidden("cg", "T", READ_BIT)
        version = kept.groups.version
        kept.groups.forbid("cg", "T", READ_BIT, True)
        assert kept.groups.version == version
        kept.groups.remove("cg")
        assert not kept.groups.is_forbidden("cg", "T", READ_BIT)


@virtual_time
async def test_what_is_allowed_again_leaves_nothing_behind(tmp_path: Path) -> None:
    async with tables(tmp_path) as kept:
        kept.groups.forbid("cg", "T", READ_BIT, True)
        kept.groups.forbid("cg", "T", 1, True)
        kept.groups.forbid("cg", "T", READ_BIT, False)
        assert kept.groups.snapshot().forbidden_table == {"cg": {"T": 2}}
        kept.groups.forbid("cg", "T", 1, False)
    assert on_disk(tmp_path)["forbiddenTable"] == {}


@pytest.mark.feature("X38")
@virtual_time
async def test_topics_are_forbidden_one_by_one_and_a_slave_has_its_masters_word(tmp_path: Path) -> None:
    async with tables(tmp_path / "master") as master, tables(tmp_path / "slave") as slave:
        for topic in ("T", "U"):
            master.groups.forbid("cg", topic, READ_BIT, True)
        slave.groups.forbid("cg", "Own", READ_BIT, True)
        slave.groups.adopt(master.groups.snapshot())
        for groups in (master.groups, slave.groups):
            assert [groups.is_forbidden("cg", topic, READ_BIT) for topic in ("T", "U", "Own")] == [True, True, False]
        master.groups.forbid("cg", "T", READ_BIT, False)
        assert [master.groups.is_forbidden("cg", topic, READ_BIT) for topic in ("T", "U")] == [False, True]
    assert on_disk(tmp_path / "slave")["forbiddenTable"] == {"cg": {"T": 4, "U": 4}}


@pytest.mark.parametrize("release", ["4.9.7", "5.5.0"])
@virtual_time
async def test_a_file_of_javas_is_read_and_written_back_with_nothing_lost(tmp_path: Path, release: str) -> None:
    (tmp_path / "config").mkdir()
    shutil.copy(JAVA / release / "subscriptionGroup.json", tmp_path / "config")
    before = json.loads((JAVA / release / "subscriptionGroup.json").read_text())
    async with tables(tmp_path) as kept:
        assert kept.groups.is_forbidden("cg", "Orders", READ_BIT) == (release == "5.5.0")
        assert kept.groups.table["cg"].retry_max_times == 3
        kept.groups.update(GroupConfig(group_name="ours"))
    after = on_disk(tmp_path)
    groups = before["subscriptionGroupTable"]
    assert {name: DEFAULTS | row for name, row in groups.items()}.items() <= after["subscriptionGroupTable"].items()
    assert after["forbiddenTable"] == before.get("forbiddenTable", {})
