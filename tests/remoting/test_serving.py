"""The millisecond of a turn for requests that are served one by one: addresses and connections go round."""

import asyncio
from dataclasses import dataclass, field
from typing import cast

from bolide.remoting.serving import TURN_S, Serving
from bolide.remoting.session import Session
from bolide.testing import VirtualClock
from tests.remoting.loops import eventually, virtual_time


class WorkClock(VirtualClock):
    worked_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.worked_s


@dataclass(eq=False)
class Guest:
    """A session with so many requests, each of which takes a turn."""

    name: str
    origin: str
    serving: Serving
    clock: WorkClock
    served: list[str]
    left: int = field(default=3)

    def go_on(self, *, is_its_turn: bool = False) -> None:
        while self.left and (is_its_turn or not self.serving.has_to_wait(cast(Session, self))):
            is_its_turn = False
            self.left -= 1
            self.clock.worked_s += TURN_S
            self.served.append(self.name)


@virtual_time
async def test_an_address_with_many_connections_has_no_more_turns_than_one_with_one() -> None:
    clock, served = WorkClock(), list[str]()
    serving = Serving(clock)
    crowd = [Guest("crowd", "10.0.0.1", serving, clock, served) for _ in range(20)]
    alone = Guest("alone", "10.0.0.2", serving, clock, served)
    for guest in (*crowd, alone):
        guest.go_on()
    await eventually(lambda: not any(guest.left for guest in (*crowd, alone)))
    assert len(served) == 63
    assert max(at for at, name in enumerate(served) if name == "alone") <= 7
    await asyncio.sleep(0)
    assert not serving._waiting
