"""What comes back of a deleted topic when the broker ends without a word: nothing."""

import shutil
from pathlib import Path

from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers import SendMessageRequest
from tests.broker.whole import Whole, whole
from tests.remoting.loops import both_loops
from tests.store.given import draft


async def send(running: Whole, body: bytes, topic: str) -> int:
    """Send to queue 0 of a topic that is made by that; returns the message's place in the queue."""
    header = SendMessageRequest(
        producer_group="P",
        topic=topic,
        default_topic="TBW102",
        default_topic_queue_count=1,
        queue_id=0,
        sys_flag=0,
        born_ms=1,
        flag=0,
    )
    fields = header.encode(short=True)
    command = Command(RequestCode.SEND_MESSAGE_V2, fields=fields, body=body)
    answer = await running.client.request(running.address, command, 10)
    assert answer.code == 0, answer.remark
    return int(answer.fields["queueOffset"])


async def crashed(root: Path, image: Path) -> None:
    """A store as a crash leaves it, with messages in topics Gone and Kept, of which Gone was deleted."""
    async with whole(root) as running:
        for n in range(5):
            assert await send(running, b"old %d" % n, "Gone") == n
            assert await send(running, b"old %d" % n, "Kept") == n
        assert (await running.ask(RequestCode.DELETE_TOPIC_IN_BROKER, topic="Gone")).code == 0
        shutil.copytree(root / "store", image / "store")


@both_loops
async def test_a_topic_deleted_before_a_crash_begins_at_0_when_it_is_made_again(tmp_path: Path) -> None:
    await crashed(tmp_path / "before", tmp_path / "after")
    async with whole(tmp_path / "after") as running:
        assert await send(running, b"new", "Gone") == 0
        assert await send(running, b"new", "Kept") == 5


@both_loops
async def test_queues_stay_when_the_table_of_topics_was_lost(tmp_path: Path) -> None:
    await crashed(tmp_path / "before", tmp_path / "after")
    for path in (tmp_path / "after" / "store" / "config").glob("topics.json*"):
        path.unlink()
    async with whole(tmp_path / "after") as running:
        assert await send(running, b"new", "Kept") == 5


@both_loops
async def test_queues_that_are_there_stay_though_the_table_does_not_know_them(tmp_path: Path) -> None:
    await crashed(tmp_path / "before", tmp_path / "after")
    config = tmp_path / "after" / "store" / "config"
    (config / "topics.json.bak").unlink(missing_ok=True)
    (config / "topics.json").write_text('{"dataVersion":{"counter":1,"timestamp":1},"topicConfigTable":{}}')
    async with whole(tmp_path / "after") as running:
        assert await send(running, b"new", "Kept") == 5


@both_loops
async def test_dead_letters_get_their_topic_back_that_a_crash_took(tmp_path: Path) -> None:
    async with whole(tmp_path / "before") as running:
        running.broker.state.store.append([draft(b"dead", "%DLQ%g", 0)])  # as the revival of popped messages does
        running.broker.state.store.append([draft(b"again", "%RETRY%g", 0)])
        shutil.copytree(tmp_path / "before" / "store", tmp_path / "after" / "store")
    async with whole(tmp_path / "after") as running:
        config = running.broker.state.topics.find("%DLQ%g")
        assert config is not None
        assert (config.read_queue_nums, config.perm) == (1, 6)
        assert running.broker.state.topics.find("%RETRY%g") is None  # the first heartbeat of the group makes it
