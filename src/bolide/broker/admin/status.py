"""What operators ask of the broker itself: how it does, how it is set, and to tidy up.

Keys of the status (28) are RocketMQ's of 4.9 and 5.x alike, so that tools of both print them. Where a key tells of
something that is not here (thread pools and their queues, a page cache lock) it has the value of one that is idle; a
key we would have to make up is left out. A change of settings (25) is answered when it is on disk; the one who asked
may hang up meanwhile.
"""

import asyncio
import logging
import shutil
from collections.abc import Awaitable
from concurrent.futures import Executor

from bolide import __version__
from bolide.broker.config import RULES, shown, updated
from bolide.broker.later.timers import Timers
from bolide.broker.state import BrokerState
from bolide.errors import Refusal, StoreError
from bolide.model.topics import is_system_topic
from bolide.protocol.bodies.routes import DataVersion, KVTable
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import VERSION, Command
from bolide.protocol.headers.operating import GetBrokerConfigAnswer, ViewBrokerStatsRequest
from bolide.remoting.changes import LOG_LEVEL, read_changes, set_log_level
from bolide.remoting.handlers import Handler
from bolide.remoting.session import Request
from bolide.settings import write_properties

_POOLS = ("send", "pull", "litePull", "query", "ack")  # whose queues RocketMQ shows
_TOLD_TO_NAME_SERVERS = frozenset({"brokerPermission", "autoCreateTopicEnable", "defaultTopicQueueNums"})
_RATE_SPANS_S = (10, 60, 600)
log = logging.getLogger(__name__)


class Status:
    """The broker about itself. `file_thread` owns the small files; a broker may be without timers."""

    def __init__(self, state: BrokerState, file_thread: Executor, timers: Timers | None) -> None:
        self._state = state
        self._settings = state.settings
        self._topics = state.topics
        self._stats = state.stats
        self._store = state.store
        self._clock = state.clock
        self._file_thread = file_thread
        self._timers = timers
        self._version = DataVersion(timestamp=state.clock.now_ms())

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.GET_BROKER_RUNTIME_INFO: self.runtime,
            RequestCode.GET_BROKER_CONFIG: self.config,
            RequestCode.UPDATE_BROKER_CONFIG: self.update_config,
            RequestCode.VIEW_BROKER_STATS_DATA: self.counters,
            RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE: self.clean_queues,
            RequestCode.CLEAN_UNUSED_TOPIC: self.clean_topics,
            RequestCode.DELETE_EXPIRED_COMMITLOG: self.clean_log,
        }

    def runtime(self, request: Request) -> Command:
        """28: what brokerStatus and clusterList print."""
        of_store = {**self._log_state(), **self._losses()}
        table = {**self._life(), **self._traffic(), **of_store, **self._timing(), **self._idle_pools()}
        return request.command.answer(ResponseCode.SUCCESS, body=KVTable(table=table).encode())

    def _life(self) -> dict[str, str]:
        seconds = max(0, self._clock.now_ms() - self._stats.booted_ms) // 1000
        days, hours, minutes = seconds // 86_400, seconds // 3_600 % 24, seconds // 60 % 60
        return {
            "brokerVersionDesc": f"Bolide_{__version__}",
            "brokerVersion": str(VERSION),
            "brokerActive": "true",
            "bootTimestamp": str(self._stats.booted_ms),
            "runtime": f"[ {days} days, {hours} hours, {minutes} minutes, {seconds % 60} seconds ]",
            "startAcceptSendRequestTimeStamp": str(self._settings.now.accepts_sends_from_ms),
            **self._role(),
        }

    def _role(self) -> dict[str, str]:
        """Keys of our own."""
        role = self._state.role.now
        table = {"brokerRole": role.kind.value, "brokerId": str(role.broker_id)}
        table |= {"masterAddr": role.master_address} if role.master_address else {}
        table |= {"brokerActing": "true"} if role.is_acting else {}
        return table | ({"brokerFenced": "true"} if role.is_fenced else {})

    def _traffic(self) -> dict[str, str]:
        stats = self._stats
        rates = [stats.rates(span_s) for span_s in _RATE_SPANS_S]
        put = stats.put_total
        handed_out = _three([rate.got_count for rate in rates])
        return {
            "putTps": _three([rate.put_count for rate in rates]),
            "getFoundTps": _three([rate.found_count for rate in rates]),
            "getMissTps": _three([rate.missed_count for rate in rates]),
            "getTotalTps": _three([rate.found_count + rate.missed_count for rate in rates]),
            "getTransferredTps": handed_out,
            "getTransferedTps": handed_out,  # as 4.9 spells it, whose tools fail without
            "msgPutTotalYesterdayMorning": str(stats.put_mornings[0]),
            "msgPutTotalTodayMorning": str(stats.put_mornings[1]),
            "msgPutTotalTodayNow": str(put.count),
            "msgGetTotalYesterdayMorning": str(stats.got_mornings[0]),
            "msgGetTotalTodayMorning": str(stats.got_mornings[1]),
            "msgGetTotalTodayNow": str(stats.got_total.count),
            "putMessageTimesTotal": str(put.count),
            "putMessageSizeTotal": str(put.size),
            "putMessageAverageSize": f"{put.size / put.count if put.count else 0.0:.1f}",
            "putMessageEntireTimeMax": str(stats.took_max_ms),
            "putMessageDistributeTime": stats.took_text(),
            "putLatency99": f"{stats.took_below_ms(0.99):.2f}",
            "putLatency999": f"{stats.took_below_ms(0.999):.2f}",
        }

    def _log_state(self) -> dict[str, str]:
        store = self._store
        directory = store.config.log_directory
        disk = shutil.disk_usage(directory)
        ratio = f"{disk.used / disk.total:.2f}"
        free_buffers = store.config.pool_buffers_max - -(-store.pooled_size // store.config.segment_size)
        return {
            "commitLogMinOffset": str(store.log_start),
            "commitLogMaxOffset": str(store.log_end),
            "earliestMessageTimeStamp": str(store.earliest_ms()),
            "commitLogDiskRatio": ratio,
            f"commitLogDiskRatio_{directory}": ratio,
            "consumeQueueDiskRatio": ratio,
            "commitLogDirCapacity": f"Total : {_size_text(disk.total)}, Free : {_size_text(disk.free)}.",
            "dispatchBehindBytes": str(store.dispatch_behind),
            "dispatchMaxBuffer": "0",
            "remainHowManyDataToFlush": _size_text(store.log_end - store.durable_end),
            "remainTransientStoreBufferNumbs": str(free_buffers if store.config.pool_enabled else (1 << 31) - 1),
            "pageCacheLockTimeMills": "0",
        }

    def _losses(self) -> dict[str, str]:
        """Keys of our own: what could not be read and was passed over, at the start and since, by who met it."""
        mishaps = self._store.mishaps
        counts = {f"passedOver_{task}": str(count) for task, count in sorted(mishaps.counts.items())}
        at_start = str(self._store.recovered.losses.size)
        return {"passedOverBytesAtStart": at_start, "passedOverTotal": str(mishaps.total), **counts}

    def _timing(self) -> dict[str, str]:
        timers, rates = self._timers, self._stats.rates(_RATE_SPANS_S[0])
        return {
            "timerReadBehind": str(0 if timers is None else timers.behind_s),
            "timerOffsetBehind": str(0 if timers is None else timers.unfiled_count),
            "timerCongestNum": str(0 if timers is None else timers.files.waiting_count),
            "timerEnqueueTps": str(rates.filed_count),
            "timerDequeueTps": str(rates.timed_count),
        }

    def _idle_pools(self) -> dict[str, str]:
        table = {
            "EndTransactionQueueSize": "0",
            "EndTransactionThreadPoolQueueCapacity": "0",
        }
        for pool in _POOLS:
            table[f"{pool}ThreadPoolQueueSize"] = "0"
            table[f"{pool}ThreadPoolQueueCapacity"] = "0"
            table[f"{pool}ThreadPoolQueueHeadWaitTimeMills"] = "0"
        return table

    def config(self, request: Request) -> Command:
        """26: all settings."""
        version = GetBrokerConfigAnswer(version=self._version.encode().decode("utf-8"))
        body = write_properties(shown(self._settings.now)).encode("utf-8")
        return request.command.answer(ResponseCode.SUCCESS, fields=version.encode(), body=body)

    def update_config(self, request: Request) -> Command | Awaitable[Command]:
        """25: change settings at run time, all that are given or none."""
        changes = read_changes(request)
        if not changes:
            return request.command.answer(ResponseCode.SUCCESS)
        path = updated(self._settings.now, changes).changes_path  # raises Refusal before anything is kept
        kept = asyncio.get_running_loop().run_in_executor(self._file_thread, RULES.note, path, changes)

        def put_in_force(done: asyncio.Future[None]) -> None:
            if done.cancelled() or done.exception() is not None:
                return
            # Another change may have come in between, so this one is made to what is in force now.
            config = updated(self._settings.now, changes)
            self._store.config = config.store
            self._settings.replace(config)
            if LOG_LEVEL in changes:
                set_log_level(config.log_level)
            if _TOLD_TO_NAME_SERVERS & changes.keys():
                self._topics.touch()
            self._version = DataVersion(counter=self._version.counter + 1, timestamp=self._clock.now_ms())
            log.info("settings changed %s kept=%s", ", ".join(sorted(changes)), path)

        kept.add_done_callback(put_in_force)
        return _answer_when(request.command, kept)

    def counters(self, request: Request) -> Command:
        """315: one counter over minute, hour and day."""
        header = ViewBrokerStatsRequest.decode(request.command.fields)
        found = self._stats.view(header.stats_name, header.stats_key, self._settings.now.cluster)
        if found is None:
            text = f"The stats <{header.stats_name}> <{header.stats_key}> not exist"  # tools look for these words
            raise Refusal(ResponseCode.SYSTEM_ERROR, text)
        return request.command.answer(ResponseCode.SUCCESS, body=found.encode())

    def clean_queues(self, request: Request) -> Command:
        """306: let go of queue and index files that point at nothing any more."""
        self._store.drop_expired()
        return request.command.answer(ResponseCode.SUCCESS)

    def clean_topics(self, request: Request) -> Command:
        """316: delete the queues of topics that are not in the table."""
        for topic in sorted(self._store.topics - self._topics.table.keys()):
            if not is_system_topic(topic):
                self._store.remove_topic(topic)
                log.info("queues of an unused topic deleted topic=%s", topic)
        return request.command.answer(ResponseCode.SUCCESS)

    def clean_log(self, request: Request) -> Command:
        """329: delete expired segments in the next runs of retention, whatever the hour."""
        self._store.ask_for_cleaning()
        return request.command.answer(ResponseCode.SUCCESS)


async def _answer_when(command: Command, kept: asyncio.Future[None]) -> Command:
    try:
        await asyncio.shield(kept)
    except StoreError as problem:
        log.error("settings not kept: %s", problem)
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(problem)) from None
    return command.answer(ResponseCode.SUCCESS)


def _three(rates: list[float]) -> str:
    return " ".join(str(rate) for rate in rates)


def _size_text(size: float) -> str:
    """Bytes as RocketMQ writes them for people."""
    units = iter(("B", "KiB", "MiB", "GiB", "TiB"))
    unit = next(units)
    while size >= 1024 and unit != "TiB":
        size, unit = size / 1024, next(units)
    return f"{size:.0f} B" if unit == "B" else f"{size:.1f} {unit}"
