"""Requests of operators: the KV configuration and the server's own settings.

Both live in small files. A change runs in the one thread that owns them (`file_thread`), in the order it came, and is
answered when it is on disk. The one who asked may hang up meanwhile: the change goes on and its consequences are drawn
(`asyncio.shield`), for half a change would be worse than one nobody waits for.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor

from bolide.errors import Refusal, StoreError
from bolide.namesrv.answers import Answers
from bolide.namesrv.config import RULES, LiveConfig, shown
from bolide.namesrv.kv import ORDER_TOPIC_CONFIG, KvConfig
from bolide.protocol.bodies.routes import KVTable
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.protocol.headers.routes import (
    DeleteKvRequest,
    GetKvAnswer,
    GetKvListRequest,
    GetKvRequest,
    PutKvRequest,
)
from bolide.remoting.changes import LOG_LEVEL, read_changes, set_log_level
from bolide.remoting.session import Request
from bolide.settings import write_properties

CHANGES_WAITING_MAX = 1000
log = logging.getLogger(__name__)


class Operations:
    """What operators keep here."""

    def __init__(self, kv: KvConfig, settings: LiveConfig, answers: Answers, file_thread: Executor) -> None:
        self._kv = kv
        self._settings = settings
        self._answers = answers
        self._file_thread = file_thread
        self._waiting_count = 0

    def handlers(self) -> dict[int, Callable[[Request], Command | Awaitable[Command]]]:
        return {
            RequestCode.PUT_KV_CONFIG: self.put,
            RequestCode.GET_KV_CONFIG: self.get,
            RequestCode.DELETE_KV_CONFIG: self.delete,
            RequestCode.GET_KVLIST_BY_NAMESPACE: self.namespace,
            RequestCode.UPDATE_NAMESRV_CONFIG: self.update_config,
            RequestCode.GET_NAMESRV_CONFIG: self.config,
        }

    def put(self, request: Request) -> Awaitable[Command]:
        """100: keep a value."""
        header = PutKvRequest.decode(request.command.fields)
        log.info("kv put namespace=%.200r key=%.200r value=%.200r", header.namespace, header.key, header.value)
        return self._change_kv(
            request, header.namespace, header.key, lambda: self._kv.put(header.namespace, header.key, header.value)
        )

    def delete(self, request: Request) -> Awaitable[Command]:
        """102: forget a value."""
        header = DeleteKvRequest.decode(request.command.fields)
        log.info("kv delete namespace=%.200r key=%.200r", header.namespace, header.key)
        return self._change_kv(
            request, header.namespace, header.key, lambda: self._kv.delete(header.namespace, header.key)
        )

    def _change_kv(self, request: Request, namespace: str, key: str, act: Callable[[], None]) -> Awaitable[Command]:
        def drop_answer() -> None:
            if namespace == ORDER_TOPIC_CONFIG:
                self._answers.forget([key])

        return self._change(request, act, drop_answer)

    def get(self, request: Request) -> Command:
        """101: one value."""
        header = GetKvRequest.decode(request.command.fields)
        value = self._kv.get(header.namespace, header.key)
        if value is None:
            text = f"no value in namespace {header.namespace!r} under key {header.key!r}"
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, text)
        return request.command.answer(ResponseCode.SUCCESS, fields=GetKvAnswer(value=value).encode())

    def namespace(self, request: Request) -> Command:
        """219: all values of a namespace."""
        header = GetKvListRequest.decode(request.command.fields)
        table = self._kv.namespace(header.namespace)
        if table is None:
            raise Refusal(ResponseCode.QUERY_NOT_FOUND, f"no namespace {header.namespace!r}")
        return request.command.answer(ResponseCode.SUCCESS, body=KVTable(table=dict(table)).encode())

    def update_config(self, request: Request) -> Awaitable[Command]:
        """318: change settings at run time, all that are given or none."""
        changes = read_changes(request)

        def change() -> None:
            config = RULES.updated(self._settings.now, changes)
            if changes:
                RULES.note(config.store_path, changes)
            self._settings.now = config
            if LOG_LEVEL in changes:
                set_log_level(config.log_level)
            log.info("settings changed %s kept=%s", ", ".join(sorted(changes)), config.store_path)

        return self._change(request, change, self._answers.clear)

    def config(self, request: Request) -> Command:
        """319: all settings."""
        text = write_properties(shown(self._settings.now))
        return request.command.answer(ResponseCode.SUCCESS, body=text.encode("utf-8"))

    def _change(
        self, request: Request, act: Callable[[], None], draw_consequences: Callable[[], None]
    ) -> Awaitable[Command]:
        if self._waiting_count >= CHANGES_WAITING_MAX:
            raise Refusal(ResponseCode.SYSTEM_BUSY, f"{self._waiting_count} changes wait already; try again later")
        self._waiting_count += 1
        done = asyncio.get_running_loop().run_in_executor(self._file_thread, act)

        def settle(done: asyncio.Future[None]) -> None:
            self._waiting_count -= 1
            if not done.cancelled():
                done.exception()  # seen, even if the one who asked hung up and will not look
            draw_consequences()

        done.add_done_callback(settle)
        return _answer_when(request.command, done)


async def _answer_when(command: Command, done: asyncio.Future[None]) -> Command:
    try:
        await asyncio.shield(done)
    except StoreError as problem:
        log.error("change not kept code=%d: %s", command.code, problem)
        raise Refusal(ResponseCode.SYSTEM_ERROR, str(problem)) from None
    return command.answer(ResponseCode.SUCCESS)
