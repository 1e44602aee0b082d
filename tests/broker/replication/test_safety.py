"""Who must have a message before it counts as kept, and how long anybody waits for that."""

import asyncio
from pathlib import Path

from bolide.broker.replication.safety import KEPT_LIMIT_S, Safety
from bolide.errors import Refusal
from bolide.store.open import open_store
from bolide.testing.loop import VirtualClock
from tests.remoting.loops import virtual_time
from tests.store.given import HOST, small


class Silent:
    """A replica counts, and it says nothing."""

    needs_replicas = True
    awaited = frozenset({2})

    def refusal(self) -> Refusal | None:
        return None

    def wait(self, end: int) -> "asyncio.Future[None] | None":
        return asyncio.get_running_loop().create_future()

    def wait_for_all(self, end: int) -> "asyncio.Future[None] | None":
        return self.wait(end)


@virtual_time
async def test_a_broker_that_stops_waits_for_no_replica_and_one_that_runs_does(tmp_path: Path) -> None:
    clock, safety = VirtualClock(), Safety()
    safety.plug(Silent())
    async with open_store(small(tmp_path), clock, HOST) as store:
        began_s = clock.monotonic_s()
        assert not await safety.kept(store)
        assert clock.monotonic_s() - began_s >= KEPT_LIMIT_S
        safety.stop()
        began_s = clock.monotonic_s()
        assert not await safety.kept(store)
        assert clock.monotonic_s() - began_s < 1
