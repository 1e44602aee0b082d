"""What ends together ends over many turns of the loop, and so does what is read without a pause."""

import socket
from collections import Counter
from contextlib import closing

from bolide.clock import SystemClock
from bolide.remoting.endings import ENDED_A_TURN_MAX, Endings
from bolide.remoting.idle import IdleSweep
from bolide.remoting.owner import Answered, Read
from bolide.remoting.session import FILLED_SIZE_MAX, Session
from tests.remoting.ends import Peer, Table, request_of, served
from tests.remoting.loops import Turns, both_loops, eventually

COUNT = 300


class Noted(Table):
    """Notes in which turn what was read and who was gone."""

    def __init__(self, turns: Turns) -> None:
        super().__init__()
        self.turns = turns
        self.read_sizes: Counter[int] = Counter()
        self.closed_counts: Counter[int] = Counter()

    def answer_read(self, read: Read) -> Answered:
        self.read_sizes[self.turns.now] += read.bounds[-1]
        return super().answer_read(read)

    def closed(self, session: Session, why: str) -> None:
        self.closed_counts[self.turns.now] += 1


@both_loops
async def test_steps_are_taken_in_their_order_some_in_each_turn() -> None:
    endings, taken = Endings(), []
    with closing(Turns()) as turns:

        def ask(number: int) -> None:
            def step() -> None:
                taken.append((number, turns.now))

            if endings.is_its_turn(step):
                step()

        for number in range(100):
            ask(number)
        assert len(taken) == ENDED_A_TURN_MAX
        await eventually(lambda: len(taken) == 100)
        assert [number for number, _ in taken] == list(range(100))
        assert max(Counter(turn for _, turn in taken).values()) == ENDED_A_TURN_MAX
        ask(100)
        assert taken[-1][0] == 100  # nobody waits any more


@both_loops
async def test_connections_that_end_at_the_same_moment_are_left_some_in_each_turn() -> None:
    with closing(Turns()) as turns:
        owner = Noted(turns)
        async with served(owner) as server:
            ends = [socket.create_connection(("127.0.0.1", server.port)) for _ in range(COUNT)]
            for end in ends:
                end.send(request_of(1).encode() + b"\0\0\1")
            await eventually(lambda: len(server.sessions) == len(owner.served) == COUNT)
            for end in ends:
                end.close()
            await eventually(lambda: owner.closed_counts.total() == COUNT)
            assert max(owner.closed_counts.values()) <= 2 * ENDED_A_TURN_MAX
            await eventually(lambda: server.connection_count == 0)


@both_loops
async def test_who_sends_without_a_pause_is_not_read_without_one() -> None:
    one = request_of(1, bytes(10_000), flag=2).encode()
    with closing(Turns()) as turns:
        owner = Noted(turns)
        async with served(owner) as server:
            with socket.create_connection(("127.0.0.1", server.port)) as end:
                end.setblocking(False)
                sent = 0
                try:
                    while True:
                        sent += end.send(one * 100)
                except BlockingIOError:
                    pass
                await eventually(lambda: len(owner.served) == sent // len(one))
                assert sent > 4 * FILLED_SIZE_MAX
                assert max(owner.read_sizes.values()) <= FILLED_SIZE_MAX + 2 * server.config.read_size


@both_loops
async def test_a_large_frame_is_taken_in_many_turns_and_others_are_served_meanwhile() -> None:
    with closing(Turns()) as turns:
        owner = Noted(turns)
        async with served(owner) as server:
            large, small = await Peer.connect(server.port), await Peer.connect(server.port)
            began = turns.now
            large.send(request_of(1, bytes(8 << 20)))
            assert (await small.ask(request_of(2))).opaque == 2
            assert len((await large.answers(1))[0].body) == 8 << 20
            assert turns.now - began > 16
            for peer in (large, small):
                peer.leave()


class Quiet:
    """A connection that fell silent."""

    def __init__(self, turns: Turns) -> None:
        self.turns = turns
        self.asked_in: list[int] = []

    def expire(self, now_s: float, idle_max_s: float) -> float:
        self.asked_in.append(self.turns.now)
        return now_s + idle_max_s


@both_loops
async def test_all_who_may_be_silent_are_asked_some_in_each_turn() -> None:
    with closing(Turns()) as turns:
        quiet = [Quiet(turns) for _ in range(1_000)]
        sweep = IdleSweep(lambda: quiet, 0.01, SystemClock())
        await eventually(lambda: all(each.asked_in for each in quiet))
        sweep.stop()
        assert max(Counter(each.asked_in[0] for each in quiet).values()) <= 64
