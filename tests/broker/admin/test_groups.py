"""What administrators ask about groups, at a whole broker."""

import json
from pathlib import Path
from typing import Any

import pytest

from bolide.broker.tables.groups import READ_BIT
from bolide.protocol.bodies.groups import GroupConfig, GroupConfigList, GroupForbidden, GroupTable
from tests.broker.whole import whole
from tests.remoting.loops import both_loops


def on_disk(root: Path) -> dict[str, dict[str, dict[str, object]]]:
    return json.loads((root / "store" / "config" / "subscriptionGroup.json").read_text())


@both_loops
async def test_200_a_group_is_on_disk_when_it_is_answered_and_the_same_again_is_no_new_version(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        wanted = b'{"groupName":"cg","consumeEnable":false,"retryMaxTimes":3}'
        assert (await at.ask(200, wanted)).code == 0
        kept = on_disk(tmp_path)["subscriptionGroupTable"]["cg"]
        assert (kept["consumeEnable"], kept["retryMaxTimes"], kept["retryQueueNums"]) == (False, 3, 1)
        version = at.broker.state.groups.version
        assert (await at.ask(200, wanted)).code == 0
        assert at.broker.state.groups.version == version
        assert (await at.ask(200, b'{"groupName":"cg"}')).code == 0
        assert at.broker.state.groups.table["cg"] == GroupConfig(group_name="cg"), "what is not said is at its default"


@pytest.mark.parametrize(
    ("body", "code", "part"),
    [
        ('{"groupName":""}', 29, "blank"),
        ('{"groupName":"a.b"}', 29, "holds '.'"),
        ('{"groupName":"' + "g" * 121 + '"}', 29, "at most 120"),
        ('{"groupName":"g","retryQueueNums":65537}', 29, "retryQueueNums = 65537"),
        ('{"groupName":"g","retryMaxTimes":4294967296}', 29, "does not fit into 32 bits"),
        ('{"groupName":"g","attributes":{"+priority.factor":"10"}}', 29, "'priority.factor' has no effect here"),
        ('{"groupName":"g","attributes":{"plain":"10"}}', 29, "must begin with + to be set"),
        (
            '{"groupName":"g","groupRetryPolicy":{"customizedRetryPolicy":{"next":[' + "1," * 40_000 + "1]}}}",
            29,
            "bytes",
        ),
        ("nonsense", 1, "SubscriptionGroupConfig in the body cannot be read"),
        ("", 1, "SubscriptionGroupConfig in the body cannot be read"),
    ],
)
@both_loops
async def test_200_what_cannot_be_is_refused_with_the_reason_and_changes_nothing(
    tmp_path: Path, body: str, code: int, part: str
) -> None:
    async with whole(tmp_path) as at:
        version = at.broker.state.groups.version
        answer = await at.ask(200, body.encode())
        assert answer.code == code
        assert part in (answer.remark or "")
        assert at.broker.state.groups.version == version


@both_loops
async def test_225_several_groups_are_set_together_or_not_at_all(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        good = GroupConfigList(group_config_list=[GroupConfig(group_name="a"), GroupConfig(group_name="b")])
        assert (await at.ask(225, good.encode())).code == 0
        assert {"a", "b"} <= on_disk(tmp_path)["subscriptionGroupTable"].keys()
        bad = GroupConfigList(group_config_list=[GroupConfig(group_name="c"), GroupConfig(group_name="bad.d")])
        assert (await at.ask(225, bad.encode())).code == 29
        assert at.broker.state.groups.get("c") is None


@both_loops
async def test_352_and_201_show_what_groups_are_set_to(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        await at.ask(200, b'{"groupName":"cg","retryMaxTimes":5}')
        assert GroupConfig.decode((await at.ask(352, group="cg")).body).retry_max_times == 5
        assert GroupConfig.decode((await at.ask(352, group="new")).body) == GroupConfig(group_name="new")
        assert at.broker.state.groups.get("new") is None, "who asks makes none"
        answer = await at.ask(201)
        table = GroupTable.decode(answer.body)
        assert table == at.broker.state.groups.snapshot()
        assert "totalGroupNum" not in answer.fields


@both_loops
async def test_352_an_unknown_group_is_26_when_groups_are_made_by_hand_only(tmp_path: Path) -> None:
    async with whole(tmp_path, autoCreateSubscriptionGroup="false") as at:
        answer = await at.ask(352, group="new")
        assert answer.code == 26
        assert "'new' is not here" in (answer.remark or "")


@pytest.mark.parametrize("word", ["cleanOffset", "removeOffset"])
@both_loops
async def test_207_a_deleted_group_keeps_its_offsets_unless_asked(tmp_path: Path, word: str) -> None:
    flag: dict[str, Any] = {word: "true"}
    async with whole(tmp_path) as at:
        for group in ("a", "b", "c"):
            await at.ask(200, GroupConfig(group_name=group).encode())
            at.broker.state.offsets.put(group, "T", 0, 7)
        assert (await at.ask(207, groupName="a")).code == 0
        assert (await at.ask(207, groupName="b", **flag)).code == 0
        assert (await at.ask(207, groupName="b", **flag)).code == 0, "tools tell every broker of a cluster"
        assert [at.broker.state.groups.get(group) is None for group in ("a", "b", "c")] == [True, True, False]
        assert [at.broker.state.offsets.get(group, "T", 0) for group in ("a", "b", "c")] == [7, None, 7]
        assert "a" not in on_disk(tmp_path)["subscriptionGroupTable"]
        answer = await at.ask(207, groupName="TOOLS_CONSUMER")
        assert answer.code == 29
        assert "belongs to RocketMQ itself" in (answer.remark or "")


@pytest.mark.feature("X38")
@both_loops
async def test_353_a_group_is_kept_from_a_topic_and_let_back(tmp_path: Path) -> None:
    async with whole(tmp_path) as at:
        at.broker.state.topics.ensure("T", 1)
        at.broker.state.groups.find("cg")

        async def ask(**readable: Any) -> bool | None:
            return GroupForbidden.decode((await at.ask(353, group="cg", topic="T", **readable)).body).readable

        assert await ask() is True
        assert await ask(readable="false") is False
        assert await ask() is False
        assert at.broker.state.groups.is_forbidden("cg", "T", READ_BIT)
        assert on_disk(tmp_path)["forbiddenTable"] == {"cg": {"T": 4}}
        assert await ask(readable="true") is True
        assert on_disk(tmp_path)["forbiddenTable"] == {}
        assert (await at.ask(353, group="nobody", topic="T", readable="false")).code == 26
        assert (await at.ask(353, group="cg", topic="Nope", readable="false")).code == 17
        assert (await at.ask(353, group="nobody", topic="Nope")).code == 0
