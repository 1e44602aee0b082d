"""The door in front of a broker's handlers and of its fast path, and the requests about who may enter.

Without access control there is none of it: the fast path is asked directly, and no request is looked at twice. With it,
the frames that the door admits in bulk go to the fast path, and all others one by one through `Door.enter`.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Executor

from bolide.access.door import Door
from bolide.access.requests import AccountRequests, UserRequests
from bolide.access.sources import Accounts, Users, open_source
from bolide.broker.replication.users import UserCopy
from bolide.broker.state import BrokerState
from bolide.errors import CorruptRecord, Refusal
from bolide.model import properties as names
from bolide.model.message import StoredMessage
from bolide.model.topics import is_system_topic
from bolide.protocol.codes import ResponseCode
from bolide.remoting.client import Client
from bolide.remoting.handlers import Handler
from bolide.remoting.owner import Answered, Read
from bolide.store.record import decode
from bolide.store.store import Store

HandleTurn = Callable[[Sequence[Read]], list[Answered]]


class Admission:
    """Who gets in; `door` is None where everybody does."""

    def __init__(self, state: BrokerState, client: Client, file_thread: Executor) -> None:
        """`client` asks a master for its users."""
        config = state.settings.now
        source = open_source(config.access, config.store.root)
        self.door: Door | None = None
        self._requests: UserRequests | AccountRequests | None = None
        self.user_copy: UserCopy | None = None
        if source is None:
            return
        self.door = Door(config.access, source, state.clock, config.cluster, _topics_of(state.store))
        state.members.may_send, state.members.user_of = self.door.may_send, self.door.user_of
        if isinstance(source, Users):
            self._requests = UserRequests(source, self.door, file_thread)
            if (pair := config.access.inner_pair) is not None:
                self.user_copy = UserCopy(state, client, source, pair, file_thread)
                self._requests.follow = self.user_copy.sync
        if isinstance(source, Accounts):
            host, port = config.advertised_host, config.listen.port
            about = (config.name, f"{host}:{port}" if host and port else "", config.cluster)
            self._requests = AccountRequests(source, state.clock, file_thread, about)

    def handlers(self) -> dict[int, Handler]:
        copied = {} if self.user_copy is None else self.user_copy.handlers()
        return copied if self._requests is None else self._requests.handlers() | copied

    def guarded(self, handle_turn: HandleTurn) -> HandleTurn:
        """The fast path behind the door."""
        door = self.door
        if door is None:
            return handle_turn

        def handle_admitted(reads: Sequence[Read]) -> list[Answered]:
            admitted: list[Read] = []
            outside: dict[int, list[int]] = {}  # by the number of the read; mostly there is none
            for number, read in enumerate(reads):
                inside, left = door.admit(read)
                if left:
                    outside[number] = left
                    read = read._replace(bounds=inside)
                admitted.append(read)
            answered = handle_turn(admitted)
            for number, left in outside.items():
                answers, also_left = answered[number]
                answered[number] = answers, _in_order(also_left, left)
            return answered

        return handle_admitted


def _in_order(left: list[int], kept: list[int]) -> list[int]:
    """The bounds of both, as they came."""
    if not left or not kept:
        return left or kept
    pairs = sorted([*zip(left[::2], left[1::2], strict=True), *zip(kept[::2], kept[1::2], strict=True)])
    return [bound for pair in pairs for bound in pair]


def _topics_of(store: Store) -> Callable[[int], str | None]:
    def topic_at(place: int) -> str | None:
        """The topic that the record there is for: of one that waits, where it will go. Refuses what is no record."""
        record = store.record_at(place)
        if record is None:
            return None
        message = _whole(record)
        if message is None or not _is_in_its_queue(store, message, place):
            raise Refusal(ResponseCode.SYSTEM_ERROR, f"no message begins at {place} in the log of this broker")
        real = message.properties.get(names.REAL_TOPIC)
        return real if real and is_system_topic(message.topic) else message.topic

    return topic_at


def _whole(record: memoryview) -> StoredMessage | None:
    try:
        return decode(record)
    except CorruptRecord:
        return None


def _is_in_its_queue(store: Store, message: StoredMessage, place: int) -> bool:
    """Anyone who sends can write a record into bodies, around what others sent between them: ask the queue."""
    queue, offset = store.queue(message.queue), message.queue_offset
    return queue is not None and queue.min_offset <= offset < queue.next_offset and queue.entry(offset)[0] == place
