"""Telling brokers who their master is now (request 1008, one-way): to everybody alive of a name, at the same time.

Best effort, as in RocketMQ: a broker that misses it learns the same when it asks next. So what does not fit is dropped
with a warning, and a broker that takes no bytes keeps nobody waiting but itself.
"""

import logging
from collections.abc import Iterable

from bolide.controller.elections import ReplicaGroup
from bolide.errors import ClientError, ConfigError
from bolide.protocol.bodies.controller import SyncStateSet
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.controller import NotifyRoleChangedRequest
from bolide.remoting.client import Client
from bolide.remoting.isolated_tasks import IsolatedTasks

TIMEOUT_S = 3.0
_UNDER_WAY_MAX = 1_000
log = logging.getLogger(__name__)


class Notices:
    """What brokers are being told."""

    def __init__(self, client: Client, tasks: IsolatedTasks) -> None:
        self._client = client
        self._tasks = tasks
        self._under_way_count = 0

    def tell(self, group: ReplicaGroup, members: Iterable[int]) -> None:
        """Send the master and the set of a group to these members."""
        for member in members:
            if self._under_way_count >= _UNDER_WAY_MAX:
                log.warning("notice dropped name=%s id=%d: too many are under way", group.name, member)
                continue
            self._under_way_count += 1
            name = f"notice.{group.name}.{member}"
            self._tasks.start(self._send(group, member), name=name).add_done_callback(self._count_down)

    def _count_down(self, _: object) -> None:
        self._under_way_count -= 1

    async def _send(self, group: ReplicaGroup, member: int) -> None:
        header = NotifyRoleChangedRequest(
            master_broker_id=group.master_id,
            master_address=group.master_address,
            master_epoch=group.master_epoch,
            sync_state_set_epoch=group.set_epoch,
        )
        body = SyncStateSet(sync_state_set=list(group.sync_set), sync_state_set_epoch=group.set_epoch).encode()
        command = Command(RequestCode.NOTIFY_BROKER_ROLE_CHANGED, fields=header.encode(), body=body)
        address = group.members[member].address
        try:
            self._client.hasten(address)  # it is alive, whatever was found there before
            await self._client.send_oneway(address, command, TIMEOUT_S)
            log.info("broker told name=%s id=%d address=%s master=%s", group.name, member, address, group.master_id)
        except (ClientError, ConfigError) as problem:
            log.warning("broker not told name=%s id=%d address=%s: %s", group.name, member, address, problem)
