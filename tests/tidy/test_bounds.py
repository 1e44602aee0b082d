"""Every number that can be set says how small and how large it may be: what nobody bounded is one request from ruin."""

import pytest

from bolide.broker.config import BrokerConfig
from bolide.broker.settings.replication import ReplicationConfig
from bolide.controller.config import ControllerConfig
from bolide.filtersrv.config import FilterServerConfig
from bolide.ha.config import HaConfig
from bolide.namesrv.config import NamesrvConfig
from bolide.proxy.config import PortConfig, ProxyConfig
from bolide.remoting.config import ConnectConfig
from bolide.remoting.listen_config import ListenConfig
from bolide.settings import Range, bounds_of, keys_of, unbounded
from bolide.store.config import StoreConfig

ROOMS = (
    BrokerConfig,
    ReplicationConfig,
    StoreConfig,
    ListenConfig,
    ConnectConfig,
    HaConfig,
    NamesrvConfig,
    ControllerConfig,
    FilterServerConfig,
    ProxyConfig,
    PortConfig,
)


@pytest.mark.parametrize("room", ROOMS)
def test_every_number_has_a_bound(room: type) -> None:
    assert unbounded(room) == []


@pytest.mark.parametrize("room", ROOMS)
def test_every_bound_leaves_room_and_holds_its_default(room: type) -> None:
    room()  # whose defaults are judged like anything that is given
    names = keys_of(room)
    bounds = {key: bound for key, bound in bounds_of(room).items() if isinstance(bound, Range)}
    assert bounds
    assert [key for key, bound in bounds.items() if not bound.low < bound.high < 1 << 63] == []
    assert bounds.keys() <= names.keys()
