"""The parts of POP, wired: what the broker holds of them.

`load` runs before anything is served, for what is out must be known before it can be acknowledged.
"""

from bolide.broker.intake import Intake
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
from bolide.remoting.handlers import Handler
from bolide.remoting.session import Session
from bolide.store.dispatch import Arrival


class Pop:
    """Pops, acknowledgements and assignments of one broker."""

    def __init__(
        self, state: BrokerState, intake: Intake, table_writer: TableWriter, reader: LaneReader, queues: TopicQueues
    ) -> None:
        self._state = state
        self.parked = ParkedPops(state.settings, state.clock)
        self.noticed = ParkedPops(state.settings, state.clock)
        self.revivals = Revivals(state, intake)
        self.orders = Orders(state, table_writer)
        self.modes = RequestModes(state, table_writer)
        access, shared = Access(state), PopState(self.revivals, self.orders, self.parked, self.noticed)
        self._pops = Pops(state, intake, access, reader, shared)
        self._acks = Acks(state, intake, access, shared)
        self._assignments = Assignments(state, self.modes, queues, table_writer)

    def handlers(self) -> dict[int, Handler]:
        return {**self._pops.handlers(), **self._acks.handlers(), **self._assignments.handlers()}

    def on_arrival(self, arrival: Arrival) -> None:
        """Messages came into a queue."""
        if self.parked.count:
            self.parked.on_arrival(arrival)
        if self.noticed.count:
            self.noticed.on_arrival(arrival)

    def left(self, session: Session) -> None:
        """A connection is gone."""
        self.parked.left(session)
        self.noticed.left(session)

    def on_reset(self, group: str, topic: str, queue_id: int) -> None:
        """A group was put elsewhere in a queue: there may be something for who waits."""
        self._released(Lane(group, topic, queue_id))

    async def load(self) -> None:
        """Find out what is out."""
        await self.revivals.load()

    async def revive_forever(self) -> None:
        """Give again what is due, until cancelled; a slave stores nothing, its master does this."""
        if not self._state.is_slave:
            await self.revivals.run_forever()

    async def release_forever(self) -> None:
        """Let go of ordered lanes whose time is over, until cancelled."""
        if not self._state.is_slave:
            await self.orders.run_forever(self._released)

    def save(self) -> None:
        """Have the tables written, for the stop; offsets are saved after it."""
        self.revivals.note_settled()
        self.orders.save()

    def _released(self, lane: Lane) -> None:
        self.parked.wake_any(lane)
        self.noticed.wake_any(lane)
