"""The store's periodic work, in one task group: where the log cannot be flushed any more, the house closes.

Each loop waits for its event or its interval, decides by a plain function whether something is due, and does the disk's
part in a thread: one for the log, for which senders may wait, and one for the queues, of which there may be thousands.
"""

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from functools import partial

from bolide.clock import Clock
from bolide.store.config import StoreConfig
from bolide.store.disk import Disk
from bolide.store.flush import is_log_flush_due
from bolide.store.store import Store

log = logging.getLogger(__name__)


@asynccontextmanager
async def open_store(
    config: StoreConfig,
    clock: Clock,
    store_host: bytes | None = None,
    disk: Disk | None = None,
    is_controlled: bool = False,
) -> AsyncIterator[Store]:
    """A store that flushes, commits and cleans by itself while the block runs."""
    with Store.open(config, clock, store_host, disk, is_controlled) as store:
        async with asyncio.TaskGroup() as background:
            loops = [
                background.create_task(_flush_forever(store, clock), name="store.flush"),
                _lasting(background, store, "store.queues", partial(_flush_queues_forever, store, clock)),
                _lasting(background, store, "store.clean", partial(_clean_forever, store)),
            ]
            if config.pool_enabled:
                loops.append(background.create_task(_commit_forever(store), name="store.commit"))
            try:
                yield store
            finally:
                for loop in loops:
                    loop.cancel()


def _lasting(
    group: asyncio.TaskGroup, store: Store, name: str, work: Callable[[], Awaitable[None]]
) -> asyncio.Task[None]:
    """For what can be late without harm: the log has it all."""
    return group.create_task(store.mishaps.lasting(name, work), name=name)


async def _flush_forever(store: Store, clock: Clock) -> None:
    config, flush = store.config, store.log_flush
    flushed_s = clock.monotonic_s()
    while flush.failure is None:
        with suppress(TimeoutError):
            async with asyncio.timeout(config.flush_interval_ms / 1000):
                await flush.wanted.wait()
        was_wanted = flush.wanted.is_set()
        flush.wanted.clear()
        dirty_size = store.progress.appended - store.progress.flushed
        since_ms = (clock.monotonic_s() - flushed_s) * 1000
        is_due = is_log_flush_due(dirty_size, since_ms, config.flush_pages_min, config.flush_thorough_interval_ms)
        if was_wanted or is_due or (config.is_sync and dirty_size):
            await store.flush_in_thread()
            flushed_s = clock.monotonic_s()


async def _flush_queues_forever(store: Store, clock: Clock) -> None:
    config = store.config
    thorough_s = clock.monotonic_s()
    while True:
        await asyncio.sleep(config.queue_flush_interval_ms / 1000)
        is_thorough = (clock.monotonic_s() - thorough_s) * 1000 >= config.queue_flush_thorough_interval_ms
        if is_thorough:
            thorough_s = clock.monotonic_s()
        sync = store.begin_queue_flush(0 if is_thorough else config.queue_flush_pages_min)
        try:
            await asyncio.get_running_loop().run_in_executor(store.queue_worker, sync)
        except OSError as problem:
            # The log has all that is in the queues: a start after a crash takes longer, and nothing is lost.
            log.error("queues or checkpoint not synced problem=%s", problem)


async def _commit_forever(store: Store) -> None:
    while True:
        await asyncio.sleep(store.config.commit_interval_ms / 1000)
        await store.commit_in_thread()


async def _clean_forever(store: Store) -> None:
    while True:
        await asyncio.sleep(store.config.clean_interval_ms / 1000)
        try:
            store.clean()
        except OSError as problem:
            log.error("nothing more was deleted in this round problem=%s", problem)
