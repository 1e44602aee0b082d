"""Telling the members of a group that it has changed, so that they share its queues again (request 40).

One-way and best effort, as in RocketMQ: a member that misses it looks for itself every 20 seconds. A thousand members
that join one by one would make half a million notices, so changes that come close together are told as one: the first
at once, the next after a short pause. A large group is told in slices, between which everybody else has a turn.
"""

import asyncio
from collections.abc import Callable, Iterable

from bolide.protocol.codes import RequestCode
from bolide.protocol.command import ONEWAY_FLAG, Command
from bolide.protocol.headers.callbacks import NotifyConsumersChangedRequest
from bolide.remoting.session import Session

Tell = Callable[[Session, Command], None]
PAUSE_S = 0.05
_SLICE_COUNT = 128


class Notices:
    """The groups whose members are still to be told. There are never more of them than groups."""

    def __init__(self, sessions_of: Callable[[str], Iterable[Session]], tell: Tell) -> None:
        self._sessions_of = sessions_of
        self._tell = tell
        self._due: dict[str, None] = {}  # a set that keeps the order
        self._is_due = asyncio.Event()

    def add(self, group: str) -> None:
        """Have everybody told who is a member by then."""
        self._due[group] = None
        self._is_due.set()

    async def tell_forever(self) -> None:
        """Tell what is due, until cancelled."""
        while True:
            await self._is_due.wait()
            self._is_due.clear()
            due, self._due = self._due, {}
            for group in due:
                await self._tell_group(group)
            await asyncio.sleep(PAUSE_S)

    async def _tell_group(self, group: str) -> None:
        fields = NotifyConsumersChangedRequest(consumer_group=group).encode()
        command = Command(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, flag=ONEWAY_FLAG, fields=fields)
        for i, session in enumerate(list(self._sessions_of(group)), start=1):
            self._tell(session, command)
            if i % _SLICE_COUNT == 0:
                await asyncio.sleep(0)
