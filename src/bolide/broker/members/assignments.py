"""Requests 400 and 401: which queues a member of a group reads, and whether it pulls or pops them.

Members that leave the sharing out to the broker ask every 20 seconds and whenever the group changed. Pulled queues are
shared out as members would among themselves, by the strategy they name. Popped ones may be read by several at once:
by all members (queue -1: any queue of that broker), or by a member and those the next few would have had.

None in the answer means nothing is known now, and the member goes on as it is; an empty list takes everything away.
"""

from bolide.broker.pop.lanes import ANY_QUEUE
from bolide.broker.pop.modes import RequestModes
from bolide.broker.pop.queues import TopicQueues
from bolide.broker.state import BrokerState
from bolide.broker.tables.table_files import TableWriter
from bolide.model.allocation import STRATEGIES, Strategy
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies.body import QueueName
from bolide.protocol.bodies.clients import MessageModel
from bolide.protocol.bodies.pop import (
    AssignmentAnswer,
    AssignmentRequest,
    GroupRequestMode,
    QueueAssignment,
    RequestMode,
)
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Request

_DEFAULT_STRATEGY = "AVG"


class Assignments:
    """Shares out queues for those who ask."""

    def __init__(self, state: BrokerState, modes: RequestModes, queues: TopicQueues, table_writer: TableWriter) -> None:
        self._settings = state.settings
        self._members = state.members
        self._modes = modes
        self._queues = queues
        self._table_writer = table_writer

    def handlers(self) -> dict[int, Handler]:
        return {
            RequestCode.QUERY_ASSIGNMENT: self.assign,
            RequestCode.SET_MESSAGE_REQUEST_MODE: self.set_mode,
        }

    async def set_mode(self, request: Request) -> Command:
        """401: pull or pop, for a group and a topic."""
        self._modes.set(GroupRequestMode.decode(request.command.body))
        await self._table_writer.flush()
        return request.command.answer(ResponseCode.SUCCESS)

    async def assign(self, request: Request) -> Command:
        """400: the queues of a member."""
        asked = AssignmentRequest.decode(request.command.body)
        mode = self._modes.find(asked.consumer_group, asked.topic)
        queues = await self._queues.find(asked.topic)
        own = None if queues is None else self._own(asked, mode, queues)
        assignments = None
        if own is not None:
            assignments = [QueueAssignment(message_queue=QueueName.of(queue), mode=mode.mode) for queue in own]
        body = AssignmentAnswer(message_queue_assignments=assignments).encode()
        return request.command.answer(ResponseCode.SUCCESS, body=body)

    def _own(
        self, asked: AssignmentRequest, mode: GroupRequestMode, queues: list[MessageQueue]
    ) -> list[MessageQueue] | None:
        if asked.message_model is MessageModel.BROADCASTING or not self._settings.now.balances_load:
            return queues
        group = self._members.consumers(asked.consumer_group)
        strategy = STRATEGIES.get(asked.strategy_name or _DEFAULT_STRATEGY)
        if group is None or strategy is None or not queues:
            return None
        members = sorted({member.client_id for member in group.channels.values()})
        if mode.mode is RequestMode.POP:
            return shared(queues, members, asked.client_id, strategy, mode.pop_share_queue_num)
        return strategy(queues, members, asked.client_id) if asked.client_id in members else []


def shared(
    queues: list[MessageQueue], members: list[str], own: str, strategy: Strategy, share_count: int
) -> list[MessageQueue]:
    """The queues a member pops: its own share and those of the `share_count` members after it. Both lists are sorted.

    None or all of the others: every queue of every broker, as one queue -1 each.
    """
    if share_count <= 0 or share_count >= len(members) - 1:
        return sorted({MessageQueue(queue.topic, queue.broker_name, ANY_QUEUE) for queue in queues})
    if own not in members:
        return []
    index = members.index(own)
    if len(members) > len(queues):
        return [queues[index % len(queues)]]  # with fewer queues than members, nobody goes without
    found: dict[MessageQueue, None] = {}
    for i in range(share_count + 1):
        found.update(dict.fromkeys(strategy(queues, members, members[(index + i) % len(members)])))
    return list(found)
