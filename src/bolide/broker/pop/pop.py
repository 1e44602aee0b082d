"""The parts of POP, wired: what the broker holds of them.

`load` runs before anything is served, for what is out must be known before it can be acknowledged.
"""

from collections.abc import Awaitable, Sequence

from bolide.broker.intake import Intake
from bolide.broker.later.escape import Escape
from bolide.broker.members.assignments import Assignments
from bolide.broker.pop.access import Access
from bolide.broker.pop.acks import Acks
from bolide.broker.pop.lanes import Lane
from bolide.broker.pop.modes import RequestModes
from bolide.broker.pop.orders import Orders
from bolide.broker.pop.parked import ParkedPops
from bolide.broker.pop.queues import TopicQueues
from bolide.broker.pop.reading import LaneReader
from bolide.broker.pop.requests import Pops
from bolide.broker.pop.revivals import Revivals
from bolide.broker.pop.state import PopState
from bolide.broker.state import BrokerState
from bolide.broker.tables.table_files import TableWriter
from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode
from bolide.protocol.headers.pop import PopMessageRequest
from bolide.protocol.headers.poptext import PopHandle
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Reply, Request
from bolide.remoting.session import Session
from bolide.store.dispatch import Arrival


class Pop:
    """Pops, acknowledgements and assignments of one broker."""

    def __init__(
        self, state: BrokerState, intake: Intake, table_writer: TableWriter, reader: LaneReader, queues: TopicQueues
    ) -> None:
        self._state = state
        self._intake = intake
        self.parked = ParkedPops(state.settings, state.clock)
        self.noticed = ParkedPops(state.settings, state.clock)
        self.revivals = Revivals(state, intake)
        self.orders = Orders(state, table_writer)
        self.modes = RequestModes(state, table_writer)
        access, shared = Access(state), PopState(self.revivals, self.orders, self.parked, self.noticed)
        self._pops = Pops(state, intake, access, reader, shared)
        self._acks = Acks(state, intake, access, shared)
        self._assignments = Assignments(state, self.modes, queues, table_writer)
        state.members.when_parted(self.parted)

    def handlers(self) -> dict[int, Handler]:
        changing = {**self._pops.handlers(), **self._acks.handlers()}
        return {**{code: self._by_master(each) for code, each in changing.items()}, **self._assignments.handlers()}

    def _by_master(self, handler: Handler) -> Handler:
        """A pop is an entry in the log, which a slave cannot write."""

        def serve(request: Request) -> Reply | Awaitable[Reply]:
            self._demand_master()
            return handler(request)

        return serve

    def _demand_master(self) -> None:
        if self._state.is_slave:
            remark = "[REJECTREQUEST]this broker is a slave and gives no messages by POP; ask its master"
            raise Refusal(ResponseCode.SYSTEM_BUSY, remark)

    def take(self, request: Request, header: PopMessageRequest) -> Reply:
        """A pop by tags of who speaks another protocol, whose header need not become text and be read again."""
        self._demand_master()
        return self._pops.take(request, header)

    def on_arrival(self, arrival: Arrival) -> None:
        """Messages came into a queue."""
        if self.parked.places.total:
            self.parked.on_arrival(arrival)
        if self.noticed.places.total:
            self.noticed.on_arrival(arrival)

    def left(self, session: Session) -> None:
        """A connection is gone."""
        self.parked.left(session)
        self.noticed.left(session)

    def parted(self, session: Session, group: str, topic: str | None) -> None:
        """A member of a group left it, or a topic of it, and its connection stays."""
        self.parked.parted(session, group, topic)
        self.noticed.parted(session, group, topic)

    def ack_turn(self, acks: Sequence[tuple[Lane, PopHandle]]) -> list[Refusal | None] | None:
        """Have messages acknowledged together, without requests (`acks.py`); None where each has to be asked for.

        That is so on a slave, where who asks is checked, and where an answer waits until it is safe.
        """
        if self._state.is_slave or self._intake.is_sync:
            return None
        return self._acks.ack_turn(acks)

    def give_up(self, request: Request) -> None:
        """Nobody waits for the answer any more: messages that come are for others."""
        self.parked.give_up(request)
        self.noticed.give_up(request)

    def on_reset(self, group: str, topic: str, queue_id: int) -> None:
        """A group was put elsewhere in a queue: there may be something for who waits."""
        self._released(Lane(group, topic, queue_id))

    async def load(self) -> None:
        """Find out what is out."""
        await self.revivals.load()

    def forget(self) -> None:
        """Another broker is the master now, and knows what is out."""
        self.revivals.forget()

    async def revive_forever(self, escape: Escape | None = None) -> None:
        """Give again what is due, until cancelled; a slave that acts stores nothing, what is due has to escape."""
        await self.revivals.run_forever(escape)

    async def release_forever(self) -> None:
        """Let go of ordered lanes whose time is over, until cancelled."""
        await self.orders.run_forever(self._released)

    def save(self) -> None:
        """Have the tables written, for the stop; offsets are saved after it."""
        if not self._state.is_slave:
            self.revivals.note_settled()
        self.orders.save()

    def _released(self, lane: Lane) -> None:
        self.parked.wake_any(lane)
        self.noticed.wake_any(lane)
