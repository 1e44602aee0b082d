"""What the calls of POP share: what is out, in order and not, and who waits for more."""

from dataclasses import dataclass

from bolide.broker.pop.orders import Orders
from bolide.broker.pop.parked import ParkedPops
from bolide.broker.pop.revivals import Revivals


@dataclass(frozen=True, slots=True)
class PopState:
    """`parked` wait for messages, `noticed` only want to be told that there are some."""

    revivals: Revivals
    orders: Orders
    parked: ParkedPops
    noticed: ParkedPops
