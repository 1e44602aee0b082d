"""A consumer to iterate over: what it gets, when it counts as done, where it goes on, and how it is steered."""

import asyncio

import pytest

from bolide import aio
from bolide.admin.admin import Admin
from bolide.errors import ClientError
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.records import decode_records
from tests.client.relay import relaying
from tests.client.scenes import OLDEST, client_clock, collecting, committed, numbers, reach_through, send_all, stage
from tests.remoting.loops import both_loops, eventually, virtual_time


@pytest.mark.feature("F004", "F202")
@both_loops
async def test_going_on_acknowledges_and_an_exception_that_leaves_the_loop_does_not() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 5))
        seen = []

        async def fail_at_2() -> None:
            async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST) as consumer:
                async for message in consumer:
                    seen.append(message.body)
                    if message.body == b"2":
                        raise RuntimeError("not this one")

        with pytest.raises(RuntimeError, match="not this one"):
            await fail_at_2()
        assert seen == numbers(0, 3)
        async with collecting("g", "T", rocket.namesrv) as again:
            await eventually(lambda: len(again.taken) == 3)
            assert again.bodies == numbers(2, 5)


@both_loops
async def test_leaving_the_loop_by_break_acknowledges_the_last_message() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 3))
        async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST) as consumer:
            async for message in consumer:
                if message.body == b"1":
                    break
        assert await committed(rocket.namesrv, "g") == 2


@pytest.mark.feature("F234")
@both_loops
async def test_a_message_without_success_comes_again_and_holds_the_progress_until_then() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 4))

        attempts: list[int] = []

        def refuse_first(message: aio.Received) -> None:
            attempts.append(message.attempt)
            if message.body == b"1" and message.attempt == 1:
                message.nack(delay=0.1)

        async with collecting("g", "T", rocket.namesrv, act=refuse_first) as member:
            await eventually(lambda: len(member.taken) == 5)
            assert member.bodies == [b"0", b"1", b"2", b"3", b"1"]
            assert attempts == [1, 1, 1, 1, 2]
            assert {message.topic for message in member.taken} == {"T"}
        assert await committed(rocket.namesrv, "g") == 4


@both_loops
async def test_a_message_has_one_verdict() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await producer.send("T", b"x")
        async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST) as consumer:
            (message,) = await consumer.receive(1, 10)
            message.ack()
            with pytest.raises(ClientError, match="has its verdict already: ack"):
                message.nack()


@pytest.mark.feature("F084", "F273")
@both_loops
async def test_tags_are_compared_as_texts_though_brokers_compare_hashes() -> None:
    """`Aa` and `BB` share a hash, as do `AaBB` and `BBAa`: a broker lets both pass."""
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        for tag in ("Aa", "BB", "C", None, "Aa"):
            await producer.send("T", (tag or "none").encode(), tags=tag)
        async with collecting("one", {"T": "Aa"}, rocket.namesrv) as one:
            await eventually(lambda: len(one.taken) == 2)
            assert one.bodies == [b"Aa", b"Aa"]
        async with collecting("two", {"T": "BB || C"}, rocket.namesrv) as two:
            await eventually(lambda: len(two.taken) == 2)
            assert two.bodies == [b"BB", b"C"]
        assert await committed(rocket.namesrv, "one") == 5


@pytest.mark.feature("F205")
@both_loops
async def test_a_group_starts_at_the_oldest_at_the_newest_or_at_a_time() -> None:
    async with (
        stage(queue_count=1) as rocket,
        aio.Producer("pg", rocket.namesrv) as producer,
        aio.PullConsumer("walk", rocket.namesrv) as walker,
    ):
        await send_all(producer, "T", numbers(0, 5))
        (queue,) = await walker.queues("T")
        middle = (await walker.pull(queue, 3)).messages[0]
        last = middle
        while last.stored_at == middle.stored_at:  # until a later millisecond has one too
            await producer.send("T", b"5")
            last = (await walker.pull(queue, await walker.max_offset(queue) - 1)).messages[0]
        async with collecting("time", "T", rocket.namesrv, start_from=aio.StartFrom.time(last.stored_at)) as member:
            await eventually(lambda: len(member.taken) >= 1)
            assert member.taken[0].queue_offset == await walker.offset_at(queue, last.stored_at)
            assert all(message.stored_at >= last.stored_at for message in member.taken)
        async with collecting("old", "T", rocket.namesrv) as member:
            await eventually(lambda: len(member.taken) >= 6)
            assert member.bodies[:5] == numbers(0, 5)


@pytest.mark.feature("F237")
@both_loops
async def test_a_reset_moves_a_running_group_back_and_forward() -> None:
    async with (
        stage(queue_count=2) as rocket,
        aio.Producer("pg", rocket.namesrv) as producer,
        Admin(rocket.namesrv) as admin,
        collecting("g", "T", rocket.namesrv) as member,
    ):
        await send_all(producer, "T", numbers(0, 10))
        await eventually(lambda: len(member.taken) == 10)
        await member.consumer.commit()
        moved = await admin.reset_group("g", "T", 0)
        assert set(moved.values()) == {0}
        await eventually(lambda: len(member.taken) == 20)
        assert set(member.counts.values()) == {2}
        member.consumer.pause()
        await send_all(producer, "T", numbers(10, 20))
        moved = await admin.reset_group("g", "T")
        assert sum(moved.values()) == 20
        await eventually(lambda: sum(member.consumer.subscriber.progress("T").values()) == 20)
        member.consumer.resume()
        await producer.send("T", b"after")
        await eventually(lambda: b"after" in member.bodies)
        assert not set(numbers(10, 20)) & set(member.bodies)


@pytest.mark.feature("F209")
@both_loops
async def test_a_paused_consumer_gets_nothing_and_goes_on_in_order() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 10))
        async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST) as consumer:
            first = [(await anext(consumer)).body for _ in range(3)]
            consumer.pause()
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(anext(consumer), 0.2)
            await producer.send("T", b"10")
            consumer.resume()
            rest = [(await anext(consumer)).body for _ in range(8)]
            assert first + rest == numbers(0, 11)


@pytest.mark.feature("F232")
@both_loops
async def test_a_seek_goes_on_elsewhere_and_what_was_out_counts_for_nothing() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 10))
        async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST) as consumer:
            out = await consumer.receive(5, 10)
            (queue,) = (queue for queue in consumer.queues if queue.topic == "T")
            consumer.seek(queue, 7)
            for message in out:
                message.ack()
            assert [message.body for message in await consumer.receive(3, 10)] == numbers(7, 10)
            with pytest.raises(ClientError, match="not owned by this consumer"):
                consumer.seek(aio.MessageQueue("T", "elsewhere", 0), 0)
            with pytest.raises(ClientError, match="not owned by this consumer"):
                consumer.pause([aio.MessageQueue("T", "elsewhere", 0)])


@pytest.mark.feature("F215", "F221")
@both_loops
async def test_what_lies_unsettled_is_limited_and_goes_on_when_something_is_settled() -> None:
    rules = aio.PullRules(held_count_max=40)
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await producer.send_batch([aio.Message("T", body) for body in numbers(0, 200)])
        async with aio.Consumer("g", "T", rocket.namesrv, start_from=OLDEST, pull=rules) as consumer:
            held: list[aio.Received] = []
            while len(held) <= 40:
                held += await consumer.receive(100, 10)
            while messages := await consumer.receive(100, 0.3):
                held += messages
            assert len(held) <= 40 + 32
            for message in held:
                message.ack()
            assert await consumer.receive(1, 10)


@both_loops
async def test_closing_from_another_task_ends_the_iteration() -> None:
    async with stage() as rocket, asyncio.TaskGroup() as tasks:
        consumer = aio.Consumer("g", "T", rocket.namesrv)
        await consumer.start()
        ended = asyncio.Event()

        async def iterate() -> None:
            async for _ in consumer:
                pass
            ended.set()

        tasks.create_task(iterate(), name="iterate")
        await asyncio.sleep(0)
        await consumer.close()
        await ended.wait()
        await consumer.close()  # a second time has no effect


@pytest.mark.feature("F028", "F119")
@virtual_time
async def test_routes_are_asked_for_every_30_seconds_and_new_queues_are_found() -> None:
    async with stage(queue_count=2) as rocket, collecting("g", "T", rocket.namesrv) as member:
        await eventually(lambda: len([queue for queue in member.consumer.queues if queue.topic == "T"]) == 2)
        await rocket.create_topic("T", 5)
        await eventually(lambda: len([queue for queue in member.consumer.queues if queue.topic == "T"]) == 5, 35)


@virtual_time
async def test_a_topic_that_is_not_there_yet_is_waited_for() -> None:
    async with (
        stage() as rocket,
        collecting("g", "Later", rocket.namesrv) as member,
        aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer,
    ):
        await producer.send("Later", b"first")
        await eventually(lambda: member.bodies == [b"first"], 10)


@virtual_time
async def test_a_topic_that_stays_away_is_told_of_once(caplog: pytest.LogCaptureFixture) -> None:
    async with stage() as rocket, collecting("g", "Never", rocket.namesrv):
        await asyncio.sleep(60)  # virtual
    said = [record.getMessage() for record in caplog.records if "has no route, waiting" in record.getMessage()]
    assert said == ["topic has no route, waiting for it: topic=Never group=g"]


@pytest.mark.feature("F207", "F240")
@virtual_time
async def test_an_idle_consumer_waits_at_the_broker_and_hears_of_a_message_at_once() -> None:
    async with (
        stage(queue_count=1) as rocket,
        collecting("g", "T", rocket.namesrv) as member,
        aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer,
    ):
        await asyncio.sleep(100)  # virtual: several long polls come back empty
        began_s = asyncio.get_running_loop().time()
        await producer.send("T", b"news")
        await eventually(lambda: member.bodies == [b"news"])
        assert asyncio.get_running_loop().time() - began_s < 1


@pytest.mark.feature("F223")
@virtual_time
async def test_a_pull_is_asked_for_searched_for_and_taken_in_and_the_next_begins_where_it_ended(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pulls = RequestCode.PULL_MESSAGE
    async with (
        stage(queue_count=1) as rocket,
        aio.Producer("pg", rocket.namesrv, clock=client_clock()) as producer,
        relaying(rocket.brokers[0].address, client_clock()) as relay,
    ):
        await send_all(producer, "T", numbers(0, 3))
        reach_through(monkeypatch, rocket.brokers[0].address, relay.address)
        async with collecting("g", "T", rocket.namesrv) as member:

            def of_topic() -> list[Command]:
                return [command for command in relay.of(pulls) if command.fields["topic"] == "T"]

            await eventually(lambda: len(member.taken) == 3 and len(of_topic()) == 2)
            asked, following = of_topic()
            fields = {"consumerGroup": "g", "queueId": "0", "queueOffset": "0", "maxMsgNums": "32", "subscription": "*"}
            assert asked.fields.items() >= fields.items(), "the client says what it wants, and from where"
            (answer,) = [answer for command, answer in relay.answered if command is asked]
            told = {"nextBeginOffset": "3", "minOffset": "0", "maxOffset": "3", "suggestWhichBrokerId": "0"}
            assert (answer.code, answer.fields.items() >= told.items()) == (0, True), "the broker says how far it is"
            assert [record.body for record in decode_records(answer.body)] == numbers(0, 3)
            assert [message.queue_offset for message in member.taken] == [0, 1, 2]
            assert following.fields["queueOffset"] == "3", "the client goes on from there"
            assert all(command is not following for command, _ in relay.answered), "it waits at the broker"


@both_loops
async def test_an_offset_the_broker_does_not_have_is_corrected_by_it() -> None:
    async with stage(queue_count=1) as rocket, aio.Producer("pg", rocket.namesrv) as producer:
        await send_all(producer, "T", numbers(0, 3))
        async with aio.PullConsumer("g", rocket.namesrv) as walker:
            (queue,) = await walker.queues("T")
            await walker.commit(queue, 1000)
        async with collecting("g", "T", rocket.namesrv) as member:
            await eventually(lambda: member.consumer.subscriber.progress("T") == {queue: 3})
            await producer.send("T", b"3")
            await eventually(lambda: member.bodies == [b"3"])


@both_loops
async def test_an_administrator_sees_how_a_consumer_runs() -> None:
    from bolide.protocol.bodies import RunningConsumer
    from bolide.protocol.command import Command

    async with (
        stage(queue_count=2) as rocket,
        aio.Producer("pg", rocket.namesrv) as producer,
        collecting("g", {"T": "A || B"}, rocket.namesrv) as member,
    ):
        await producer.send("T", b"x", tags="A")
        await eventually(lambda: len(member.taken) == 1)
        fields = {"consumerGroup": "g", "clientId": member.consumer.subscriber.client_id, "jstackEnable": "true"}
        command = Command(RequestCode.GET_CONSUMER_RUNNING_INFO, fields=fields)
        answer = await producer.instance.ask(rocket.brokers[0].address, command)
        state = RunningConsumer.decode(answer.body)
        assert state.properties["PROP_CONSUME_TYPE"] == "CONSUME_PASSIVELY"
        assert {row.topic: row.sub_string for row in state.subscription_set} == {"T": "A || B", "%RETRY%g": "*"}
        assert sorted(queue.queue_id for queue in state.mq_table if queue.topic == "T") == [0, 1]
        assert all(row.last_pull_timestamp > 0 for row in state.mq_table.values())
        assert "task consumer.g.rebalance" in (state.jstack or "")
