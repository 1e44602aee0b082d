"""How far a group has come: in the brokers for a group that shares, in a local file for one that broadcasts.

Progress is kept in memory and written every few seconds, when a queue is given up, and at the end. It may be told late,
which delivers a message twice, and never early.
"""

import asyncio
import json
import logging
from pathlib import Path

from bolide.client.access import failure_of
from bolide.client.instance import Instance
from bolide.errors import BolideError, NoAnswer, StoreError
from bolide.files import read_whole, write_whole
from bolide.model.queue import MessageQueue, QueueOffset
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import OffsetAnswer, QueryConsumerOffsetRequest, UpdateConsumerOffsetRequest

log = logging.getLogger(__name__)


class BrokerPositions:
    """Each queue's progress is kept by its broker."""

    def __init__(self, instance: Instance, group: str, *, is_zero_if_young: bool = True) -> None:
        """Brokers answer 0 for a group without progress while a queue has its first message; those of 5.x need not."""
        self._instance = instance
        self._group = group
        self._is_zero_if_young = is_zero_if_young

    async def read(self, queue: MessageQueue) -> int | None:
        address = await self._instance.found_address(queue.topic, queue.broker_name)
        header = QueryConsumerOffsetRequest(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            is_zero_if_absent=self._is_zero_if_young,
        )
        command = Command(RequestCode.QUERY_CONSUMER_OFFSET, fields=header.encode())
        answer = await self._instance.request(address, command, self._instance.config.request_timeout_s)
        if answer.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        if answer.code != ResponseCode.SUCCESS:
            raise failure_of(answer, f"the offset of {queue} is not known")
        return OffsetAnswer.decode(answer.fields).offset

    async def write(self, offsets: dict[MessageQueue, int]) -> None:
        """Also what has not changed: a broker that was killed may have forgotten it."""
        by_broker: dict[str, dict[MessageQueue, int]] = {}
        for queue, offset in offsets.items():
            by_broker.setdefault(queue.broker_name, {})[queue] = offset
        await asyncio.gather(*(self._write_all(told) for told in by_broker.values()))

    async def _write_all(self, offsets: dict[MessageQueue, int]) -> None:
        """To one broker; if it does not take one, it would not take the others either."""
        try:
            for queue, offset in offsets.items():
                await self.tell(queue, offset)
        except BolideError as problem:
            # Who pulls from a broker that is away says so, once.
            level = logging.DEBUG if isinstance(problem, NoAnswer) else logging.WARNING
            log.log(level, "progress not told queue=%s offset=%d problem=%s", queue, offset, problem)

    async def tell(self, queue: MessageQueue, offset: int) -> None:
        """Keep one offset, or raise. Answered, unlike Java's: one that is lost at a close delivers messages twice."""
        address = await self._instance.found_address(queue.topic, queue.broker_name)
        header = UpdateConsumerOffsetRequest(
            consumer_group=self._group, topic=queue.topic, queue_id=queue.queue_id, commit_offset=QueueOffset(offset)
        )
        await self._instance.ask(address, Command(RequestCode.UPDATE_CONSUMER_OFFSET, fields=header.encode()))


class FilePositions:
    """Every member of a broadcasting group has its own progress: RocketMQ's offsets.json."""

    def __init__(self, directory: Path, client_id: str, group: str) -> None:
        self._path = directory / client_id / group / "offsets.json"
        self._offsets: dict[MessageQueue, int] = read_whole(self._path, _parse, {})

    async def read(self, queue: MessageQueue) -> int | None:
        return self._offsets.get(queue)

    async def write(self, offsets: dict[MessageQueue, int]) -> None:
        merged = {**self._offsets, **offsets}
        if merged == self._offsets:
            return
        self._offsets = merged
        try:
            await asyncio.to_thread(write_whole, self._path, _text(merged))
        except StoreError as problem:
            log.warning("progress not kept problem=%s", problem)


def _parse(text: str) -> dict[MessageQueue, int]:
    """Java writes the queue object itself as a map key, which is no JSON; both forms are read."""
    from bolide.protocol import fastjson

    document = fastjson.loads(text)
    table = document.get("offsetTable") if isinstance(document, dict) else None
    if not isinstance(table, dict):
        raise ValueError("there is no offsetTable in it")
    offsets = {}
    for key, offset in table.items():
        queue = json.loads(key)
        offsets[MessageQueue(queue["topic"], queue["brokerName"], int(queue["queueId"]))] = int(offset)
    return offsets


def _text(offsets: dict[MessageQueue, int]) -> str:
    rows = (
        f'{{"brokerName":{json.dumps(queue.broker_name)},"queueId":{queue.queue_id},"topic":{json.dumps(queue.topic)}}}'
        f":{offset}"
        for queue, offset in sorted(offsets.items())
    )
    return f'{{"offsetTable":{{{",".join(rows)}}}}}'
