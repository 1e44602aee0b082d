"""Who takes which queue: the strategies are in `model/allocation.py`, for brokers share out queues by them too."""

from bolide.model.allocation import (
    STRATEGIES,
    Queues,
    Strategy,
    allocate,
    averagely,
    by_circle,
    by_consistent_hash,
    by_machine_room,
    fixed,
    nearby,
)

__all__ = ["STRATEGIES", "Queues", "Strategy", "allocate", "averagely", "by_circle", "by_consistent_hash"]
__all__ += ["by_machine_room", "fixed", "nearby"]
