"""The filter server: takes filters from consumers, pulls from the broker beside it, passes on what they let through.

    consumer ── 302, the source ──▶ filter server ── 301, every 10 s ──▶ broker ── its registrations ──▶ name servers
    consumer ── 11, a pull ───────▶ filter server ── 11, everything ───▶ broker

RocketMQ had it until 4.2, with filters in Java; here they are in Python. What the broker would have to send over the
network is looked at on its own machine, and the work is not the broker's.

An upload is code. It is taken only if it is signed with the key that was configured (RocketMQ's ACL signature), and it
runs in a process of its own (`worker.py`), never in this one. A filter that fails, hangs or dies is an error to anyone
who pulls (1); messages nobody decided about are not passed on.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from bolide import kernel
from bolide.clock import Clock
from bolide.errors import ClientError, Refusal
from bolide.filtersrv.config import FilterServerConfig, shown
from bolide.filtersrv.metrics import show
from bolide.filtersrv.process import FilterFailed, FilterLimits, FilterProcess, FilterSource
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import PullMessageRequest
from bolide.protocol.headers.filters import (
    RegisterFilterClassRequest,
    RegisterFilterServerAnswer,
    RegisterFilterServerRequest,
)
from bolide.protocol.records import MAGIC_V1, MAGIC_V2
from bolide.protocol.signature import ACCESS_KEY, verify
from bolide.remoting.address import split_address
from bolide.remoting.client import Client
from bolide.remoting.handlers import Handler, Handlers, bounded_body
from bolide.remoting.owner import Owner
from bolide.remoting.pages import PageServer
from bolide.remoting.request_times import RequestTimes
from bolide.remoting.server import Server, listen
from bolide.remoting.session import Reply, Request, Session

GROUP = "FILTERSRV_CONSUMER"
REGISTER_INTERVAL_S = 10.0
REGISTER_AGAIN_S = 2.0
REGISTER_LIMIT_S = 5.0
ABSENCE_MAX_S = 60.0
REST_AFTER_S = 300.0
SOURCE_SIZE_MAX = 1 << 20
_SUSPEND, _SUBSCRIPTION = 2, 4
_AHEAD_MS = 1_000  # our answer must be there before the consumer gives up
_PULL_LATE_S = 10.0
_LOGGED = frozenset({"connectWhichBroker", "listenPort", "bolideFilterTimeMax", "bolideFilterMemoryMax"})
log = logging.getLogger(__name__)


class FilterServer(Owner):
    """The owner of all connections."""

    def __init__(self, config: FilterServerConfig, client: Client, clock: Clock) -> None:
        self.config = config
        self._client = client
        self._clock = clock
        self.limits = FilterLimits(config.time_max_ms / 1000, config.memory_max_mb)
        self.filters: dict[tuple[str, str], FilterProcess] = {}
        self._used_s: dict[FilterProcess, float] = {}
        self._uploads = asyncio.Lock()
        self.times = RequestTimes(clock.monotonic_s) if config.metrics.is_on else None
        self.pages: PageServer | None = None  # where metrics are shown, while it runs
        self.on_absence: Callable[[ClientError], None] = _say_absence  # told each time the broker is not found
        self._handlers = Handlers(self.handlers())

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.REGISTER_MESSAGE_FILTER_CLASS: self.upload,
            RequestCode.PULL_MESSAGE: self.pull,
        }

    def serve(self, request: Request) -> Reply | Awaitable[Reply]:
        return self._handlers.serve(request)

    def on_answer(self, request: Request, answer: Command) -> None:
        if self.times is not None:
            self.times.answered(request, answer.code)

    def closed(self, session: Session, why: str) -> None:
        pass

    # 302

    async def upload(self, request: Request) -> Command:
        """A consumer's filter; the same once more changes nothing."""
        self._check_sender(request)
        header = RegisterFilterClassRequest.decode(request.command.fields)
        body = bounded_body(request, SOURCE_SIZE_MAX)
        crc = kernel.body_crc(body)
        if crc != header.crc:
            remark = f"the source has CRC {crc}, the header says {header.crc}: it was changed on its way"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        source = FilterSource(header.consumer_group, header.topic, header.class_name, crc, body)
        async with self._uploads:
            await self._register(source)
        return request.command.answer(ResponseCode.SUCCESS)

    def _check_sender(self, request: Request) -> None:
        config, command = self.config, request.command
        if not config.takes_uploads:
            raise Refusal(ResponseCode.NO_PERMISSION, "no filters are taken here: clientUploadFilterClassEnable=false")
        if not config.secret_key:
            remark = "no filters are taken here: accessKey and secretKey of the filter server are not set"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)
        is_known = command.fields.get(ACCESS_KEY) == config.access_key
        if not verify(command.fields, command.body, config.secret_key) or not is_known:
            log.warning("upload refused peer=%s: not signed with the key of this server", request.session.peer)
            remark = "the upload is not signed with the key of this filter server: give the consumer its credentials"
            raise Refusal(ResponseCode.NO_PERMISSION, remark)

    async def _register(self, source: FilterSource) -> None:
        key = source.topic, source.group
        known = self.filters.get(key)
        if known is not None and known.source == source:
            return
        if known is None and len(self.filters) >= self.config.filter_count_max:
            remark = f"{len(self.filters)} filters are here already, the most that are taken (bolideFilterCountMax)"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        process = FilterProcess(source, self.limits)
        try:
            await process.check()
        except FilterFailed as problem:
            process.close()
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"filter {source.class_name}: {problem}") from None
        if known is not None:
            known.close()
            self._used_s.pop(known, None)
        self.filters[key] = process
        self._used_s[process] = self._clock.monotonic_s()
        log.info("filter taken group=%s topic=%s class=%s", source.group, source.topic, source.class_name)

    # 11

    async def pull(self, request: Request) -> Command:
        """Messages of a queue that the group's filter lets through."""
        header = PullMessageRequest.decode(request.command.fields)
        process = self.filters.get((header.topic, header.consumer_group))
        if process is None:
            remark = f"no filter of {header.consumer_group!r} for {header.topic!r} is here; upload it first (302)"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
        self._used_s[process] = self._clock.monotonic_s()
        answer = await self._pull(header)
        if answer.code != ResponseCode.SUCCESS:
            return request.command.answer(answer.code, remark=answer.remark, fields=answer.fields)
        try:
            verdicts = await process.decide(answer.body)
        except FilterFailed as problem:
            log.warning("filter failed group=%s topic=%s problem=%s", header.consumer_group, header.topic, problem)
            remark = f"filter {process.source.class_name}: {problem}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark) from None
        body = chosen(answer.body, verdicts)
        if not body:
            code, remark = ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE"
            return request.command.answer(code, remark=remark, fields=answer.fields)
        return request.command.answer(ResponseCode.SUCCESS, remark=answer.remark, fields=answer.fields, body=body)

    async def _pull(self, asked: PullMessageRequest) -> Command:
        suspend_ms = max(0, asked.suspend_timeout_ms - _AHEAD_MS) if asked.sys_flag & _SUSPEND else 0
        header = PullMessageRequest(
            consumer_group=GROUP,
            topic=asked.topic,
            queue_id=asked.queue_id,
            queue_offset=asked.queue_offset,
            message_count_max=asked.message_count_max,
            sys_flag=_SUBSCRIPTION | (_SUSPEND if suspend_ms else 0),
            commit_offset=asked.queue_offset,
            suspend_timeout_ms=suspend_ms,
            subscription="*",
            subscription_version=0,
            expression_type="TAG",
            answer_size_max=asked.answer_size_max,
        )
        command = Command(RequestCode.PULL_MESSAGE, fields=header.encode())
        try:
            return await self._client.request(self.config.broker, command, suspend_ms / 1000 + _PULL_LATE_S)
        except ClientError as problem:
            remark = f"the broker at {self.config.broker} cannot be asked: {problem}"
            raise Refusal(ResponseCode.SYSTEM_ERROR, remark) from None

    # Life

    async def register_forever(self, port: int, registered: asyncio.Event) -> None:
        """Be known to the broker. One that was never there ends us at once, one that is gone after a minute.

        RocketMQ's ends at the first time it is not answered, and so with nearly every restart of its broker.
        """
        heard_s = self._clock.monotonic_s()
        while True:
            try:
                await self._register_at_broker(port, registered)
            except ClientError as problem:
                if not problem.retriable:
                    raise
                if not registered.is_set():
                    raise ClientError(
                        f"no broker answers at {self.config.broker} ({problem}); start it there, with bolide up or "
                        f"bolide broker, or say where it is: bolide filtersrv --broker HOST:PORT"
                    ) from problem
                check_absence(self.config.broker, self._clock.monotonic_s() - heard_s, problem)
                self.on_absence(problem)
                await asyncio.sleep(REGISTER_AGAIN_S)
            else:
                heard_s = self._clock.monotonic_s()
                await asyncio.sleep(REGISTER_INTERVAL_S)

    async def _register_at_broker(self, port: int, registered: asyncio.Event) -> None:
        session = await self._client.session(self.config.broker, REGISTER_LIMIT_S)
        host = self.config.advertised_host or split_address(session.local)[0]
        header = RegisterFilterServerRequest(address=f"{host}:{port}")
        command = Command(RequestCode.REGISTER_FILTER_SERVER, fields=header.encode())
        answer = await self._client.request(self.config.broker, command, REGISTER_LIMIT_S)
        if answer.code != ResponseCode.SUCCESS:
            raise ClientError(f"the broker at {self.config.broker} refused us: {answer.remark}", answer.code)
        if not registered.is_set():
            told = RegisterFilterServerAnswer.decode(answer.fields)
            log.info("registered broker=%s id=%d address=%s", told.broker_name, told.broker_id, header.address)
            registered.set()

    async def rest_forever(self) -> None:
        """End the processes of filters that nobody pulls through; a pull starts them again."""
        while True:
            await asyncio.sleep(REST_AFTER_S / 5)
            since_s = self._clock.monotonic_s() - REST_AFTER_S
            for process, used_s in self._used_s.items():
                if used_s < since_s and process.is_running:
                    process.rest()

    def close(self) -> None:
        for process in self.filters.values():
            process.close()


def check_absence(broker: str, away_s: float, problem: ClientError) -> None:
    """Raise the end where the broker is away for too long."""
    if away_s > ABSENCE_MAX_S:
        raise ClientError(
            f"the broker at {broker} is gone for more than {ABSENCE_MAX_S:g} s ({problem}), and nobody finds us "
            f"without it; start it again when the broker is back"
        ) from problem


def _say_absence(problem: ClientError) -> None:
    log.warning("the broker does not know us for now, tried again problem=%s", problem)


def chosen(records: bytes, verdicts: bytes) -> bytes:
    """The records whose verdict is 1, as they came; raises Refusal if there are more or fewer verdicts."""
    parts = []
    at = 0
    for verdict in verdicts:
        size = int.from_bytes(records[at : at + 4], "big")
        if size <= 0 or int.from_bytes(records[at + 4 : at + 8], "big") not in (MAGIC_V1, MAGIC_V2):
            break
        if verdict:
            parts.append(records[at : at + size])
        at += size
    if at != len(records):
        remark = f"the filter gave {len(verdicts)} verdicts, which is not one for each message"
        raise Refusal(ResponseCode.SYSTEM_ERROR, remark)
    return b"".join(parts)


@asynccontextmanager
async def serve(config: FilterServerConfig, clock: Clock) -> AsyncIterator[tuple[FilterServer, Server]]:
    """A filter server that its broker knows, as long as the block lasts."""
    texts = " ".join(f"{key}={text}" for key, text in sorted(shown(config).items()) if key in _LOGGED)
    log.info("filter server starts kernel=%s %s", kernel.NAME, texts)
    if config.ignored:
        log.warning("settings without effect here: %s", ", ".join(sorted(config.ignored)))
    if not config.secret_key:
        log.warning("no filter can be uploaded: set accessKey and secretKey")
    async with Client(config.connect, clock) as client:
        owner = FilterServer(config, client, clock)
        try:
            async with asyncio.TaskGroup() as background, listen(config.listen, owner, clock) as server:
                registered = asyncio.Event()
                tasks = [
                    background.create_task(owner.register_forever(server.port, registered), name="filtersrv.register"),
                    background.create_task(owner.rest_forever(), name="filtersrv.rest"),
                ]
                await registered.wait()
                try:
                    async with show(owner, clock) as owner.pages:
                        yield owner, server
                finally:
                    for task in tasks:
                        task.cancel()
        finally:
            owner.close()
    log.info("filter server stopped")
