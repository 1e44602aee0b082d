"""Members of a group share the queues: each queue has one owner, whoever joins, leaves, falls or hangs."""

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest

from bolide import aio
from bolide.admin.admin import Admin
from bolide.client.config import client_config
from bolide.client.instance import client_id_of
from bolide.protocol import fastjson
from bolide.testing import AsyncCluster
from tests.client.scenes import Collector, client_clock, collecting, is_shared, numbers, send_all, stage
from tests.remoting.loops import both_loops, eventually, virtual_time


async def all_taken(expected: list[bytes], *members: Collector) -> None:
    await eventually(lambda: sum(len(member.taken) for member in members) >= len(expected), 60)
    assert sum((member.counts for member in members), Counter()) == Counter(expected)


@pytest.mark.feature("F203", "F217", "F241")
@both_loops
async def test_two_members_split_the_messages_and_another_group_gets_them_all() -> None:
    async with (
        stage() as rocket,
        collecting("one", "T", rocket.namesrv) as a,
        collecting("one", "T", rocket.namesrv) as b,
        collecting("other", "T", rocket.namesrv) as c,
        aio.Producer("pg", rocket.namesrv) as producer,
    ):
        await eventually(lambda: is_shared(8, a, b))
        assert len({a.consumer.subscriber.client_id, b.consumer.subscriber.client_id}) == 2
        await send_all(producer, "T", numbers(0, 80))
        await all_taken(numbers(0, 80), a, b)
        await all_taken(numbers(0, 80), c)
        assert min(len(a.taken), len(b.taken)) > 20


@pytest.mark.feature("F224", "F227")
@virtual_time
async def test_members_that_come_and_go_own_every_queue_once_and_lose_no_message() -> None:
    async with (
        stage() as rocket,
        aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer,
        collecting("g", "T", rocket.namesrv) as a,
    ):
        await send_all(producer, "T", numbers(0, 40))
        await all_taken(numbers(0, 40), a)
        async with collecting("g", "T", rocket.namesrv) as b, collecting("g", "T", rocket.namesrv) as c:
            await eventually(lambda: is_shared(8, a, b, c), 30)
            await send_all(producer, "T", numbers(40, 80))
            await all_taken(numbers(0, 80), a, b, c)
        began_s = asyncio.get_running_loop().time()
        await eventually(lambda: is_shared(8, a), 30)
        assert asyncio.get_running_loop().time() - began_s < 5  # told by a notice, and not found after 20 s
        await send_all(producer, "T", numbers(80, 120))
        await all_taken(numbers(0, 120), a, b, c)


@virtual_time
async def test_many_who_join_at_once_have_shared_within_seconds() -> None:
    """A notice that comes while the one before is followed must not be lost until the next round."""
    async with stage(queue_count=16) as rocket, AsyncExitStack() as stack:
        members = [await stack.enter_async_context(collecting("g", "T", rocket.namesrv)) for _ in range(8)]
        await eventually(lambda: is_shared(16, *members), 6)


@pytest.mark.feature("F234", "F239", "F218")
@virtual_time
async def test_what_was_settled_at_a_close_is_not_delivered_again() -> None:
    async with stage(queue_count=2) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 10))
        async with collecting("g", "T", rocket.namesrv) as first:
            await all_taken(numbers(0, 10), first)
        await send_all(producer, "T", numbers(10, 20))
        async with collecting("g", "T", rocket.namesrv) as second:
            await all_taken(numbers(10, 20), second)
        async with Admin(rocket.namesrv, clock=client_clock()) as admin:
            rows = [row for row in await admin.group_progress("g") if row.queue.topic == "T"]
            assert sum(row.consumer_offset for row in rows) == 20
            assert [row.behind for row in rows] == [0, 0]


@pytest.mark.feature("F235")
@virtual_time
async def test_a_member_that_dies_without_a_word_leaves_its_unsettled_messages_to_others() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer:
        await send_all(producer, "T", numbers(0, 5))
        dying = aio.Consumer("g", "T", rocket.namesrv, start_from=aio.StartFrom.oldest(), clock=client_clock())
        await dying.start()
        taken = await dying.receive(5, 10)
        assert len(taken) == 5
        taken[0].ack()
        taken[1].ack()
        await dying.commit()
        dying.subscriber.carry_out = lambda *_: None  # type: ignore[method-assign]
        async with collecting("g", "T", rocket.namesrv) as heir:
            await dying.close()
            await all_taken(numbers(2, 5), heir)


@pytest.mark.feature("F213", "F216")
@virtual_time
async def test_a_broker_that_was_restarted_knows_all_members_again_before_the_next_heartbeat() -> None:
    async with (
        stage() as rocket,
        collecting("g", "T", rocket.namesrv) as a,
        collecting("g", "T", rocket.namesrv) as b,
        Admin(rocket.namesrv, clock=client_clock()) as admin,
    ):
        await eventually(lambda: is_shared(8, a, b), 30)
        (broker,) = rocket.brokers
        await broker.kill()
        await broker.start()
        began_s = asyncio.get_running_loop().time()
        found = await admin.members("g")
        while found is None or len(found.connection_set) < 2:
            await asyncio.sleep(0.2)  # virtual
            found = await admin.members("g")
        assert asyncio.get_running_loop().time() - began_s < 8
        assert {row.topic for row in found.subscription_table.values()} == {"T", "%RETRY%g"}
        await eventually(lambda: is_shared(8, a, b), 30)


@pytest.mark.feature("F204", "F238", "F218")
@both_loops
async def test_broadcasting_gives_everything_to_each_and_a_restart_goes_on_where_it_was(tmp_path: Path) -> None:
    def member(rocket: AsyncCluster, name: str) -> Any:
        options: dict[str, Any] = {"broadcasting": True, "instance_name": name, "offsets_directory": tmp_path}
        return collecting("g", "T", rocket.namesrv, **options)

    async with stage(queue_count=4) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 20))
        async with member(rocket, "a") as a, member(rocket, "b") as b:
            await all_taken(numbers(0, 20), a)
            await all_taken(numbers(0, 20), b)
        await send_all(producer, "T", numbers(20, 30))
        async with member(rocket, "a") as again:
            await all_taken(numbers(20, 30), again)
        config = client_config(rocket.namesrv, instance_name="a")
        file = tmp_path / client_id_of(config) / "g" / "offsets.json"
        table: Any = fastjson.loads(file.read_text())

        assert sum(table["offsetTable"].values()) == 30
        async with Admin(rocket.namesrv) as admin:
            assert await admin.group_progress("g") == []


@pytest.mark.feature("F303", "F103")
@both_loops
async def test_a_group_twice_in_one_named_instance_is_refused_and_without_a_name_it_is_not() -> None:
    async with stage() as rocket, collecting("g", "T", rocket.namesrv, instance_name="same"):
        with pytest.raises(aio.ClientError, match="open already in instance"):
            await aio.Consumer("g", "T", rocket.namesrv, instance_name="same").start()
        async with collecting("g", "T", rocket.namesrv), collecting("g", "T", rocket.namesrv):
            pass


@pytest.mark.feature("F302")
@virtual_time
async def test_two_with_the_same_client_id_own_the_same_half(monkeypatch: pytest.MonkeyPatch) -> None:
    """As with RocketMQ: a name given twice on one host is a mistake, and this is how it shows."""
    monkeypatch.setattr("bolide.client.instance._open", _Forgetful())
    async with stage() as rocket, AsyncExitStack() as stack:
        options: dict[str, Any] = {"instance_name": "twin"}
        twins = [await stack.enter_async_context(collecting("g", "T", rocket.namesrv, **options)) for _ in range(2)]
        await eventually(lambda: all(len(twin.consumer.queues) >= 4 for twin in twins), 30)
        await asyncio.sleep(45)  # virtual: two rounds
        shares = [[queue for queue in twin.consumer.queues if queue.topic == "T"] for twin in twins]
        assert shares[0] == shares[1]
        assert len(shares[0]) == 4


class _Forgetful(dict[object, object]):
    """As in two processes: neither finds the instance of the other."""

    def get(self, key: object, default: object = None) -> object:
        return default

    def __delitem__(self, key: object) -> None:
        self.pop(key, None)


@pytest.mark.feature("F299", "F101", "F104")
@both_loops
async def test_a_producer_and_a_consumer_of_one_name_are_one_client_to_the_broker() -> None:
    async with (
        stage() as rocket,
        aio.Producer("pg", rocket.namesrv, instance_name="one") as producer,
        collecting("g", "T", rocket.namesrv, instance_name="one") as member,
    ):
        await producer.start()  # a second time has no effect
        await send_all(producer, "T", numbers(0, 8))
        await all_taken(numbers(0, 8), member)
        (broker,) = rocket.brokers
        assert producer.instance is member.consumer.subscriber.instance
        sessions = list(producer.instance.client.sessions())
        assert sorted(session.peer for session in sessions) == sorted((rocket.namesrv, broker.address))


@pytest.mark.feature("F301", "F300", "F304")
@both_loops
async def test_two_clusters_in_one_process_need_no_names() -> None:
    async with (
        stage() as one,
        stage() as two,
        aio.Producer("pg", one.namesrv) as first,
        aio.Producer("pg", two.namesrv) as second,
        collecting("g", "T", one.namesrv) as a,
        collecting("g", "T", two.namesrv) as b,
    ):
        assert first.instance.client_id != second.instance.client_id
        await send_all(first, "T", numbers(0, 8))
        await send_all(second, "T", numbers(100, 108))
        await all_taken(numbers(0, 8), a)
        await all_taken(numbers(100, 108), b)
