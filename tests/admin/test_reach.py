"""One list of brokers for many questions."""

import asyncio

from bolide.admin.admin import Admin
from bolide.admin.reach import LOOK_S
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.testing import cluster
from tests.dashboard.clocks import HeldClock
from tests.remoting.loops import both_loops


class Counted(Admin):
    """An administrator that counts how often the name server is asked for brokers."""

    count = 0

    async def _namesrv(self, command: Command) -> Command:
        Counted.count += command.code == RequestCode.GET_BROKER_CLUSTER_INFO
        return await super()._namesrv(command)


@both_loops
async def test_one_look_asks_the_name_server_once_for_many_groups_and_again_after_a_moment() -> None:
    clock = HeldClock()
    Counted.count = 0
    async with cluster() as here, Counted(here.namesrv, clock=clock) as admin:
        look = admin.one_look()
        await asyncio.gather(*(look.members(f"group-{number}") for number in range(20)))
        assert Counted.count == 1
        clock.now_s += LOOK_S + 1
        assert await look.members("readers") is None
        assert Counted.count == 2
        await admin.members("readers")
        await admin.members("readers")
        assert Counted.count == 4  # an administrator of its own always asks


@both_loops
async def test_each_look_has_its_own_list_of_silent_brokers() -> None:
    async with cluster(brokers=2) as here, Admin(here.namesrv, partial=True, timeout_s=2) as admin:
        first, second = admin.one_look(), admin.one_look()
        assert len(await first.master_addresses()) == 2
        await here.brokers[1].kill()
        await first.groups()
        assert set(first.silent) == {"broker-1"}
        assert second.silent == {}
