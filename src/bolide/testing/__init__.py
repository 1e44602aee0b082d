"""Doubles that ship: time you hold, a link you can cut, a cluster inside a test.

`run` and `VirtualClock` hold the time, `open_link` is the link, `cluster` the cluster; its pytest fixture is
`bolide_cluster` (`plugin.py`). Names are loaded when they are first used: pytest loads the plugin in every project that
has Bolide installed, and a run that does not use it should not pay for it.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bolide.testing.blocking import Cluster, Node
    from bolide.testing.clusters import AsyncCluster, PlannedCluster, cluster
    from bolide.testing.link import Link, open_link
    from bolide.testing.loop import NothingLeft, VirtualClock, VirtualLoop, run
    from bolide.testing.nodes import AsyncNode, NotFrozen, NotStarted

__all__ = [
    "AsyncCluster",
    "AsyncNode",
    "Cluster",
    "Link",
    "Node",
    "NotFrozen",
    "NotStarted",
    "NothingLeft",
    "PlannedCluster",
    "VirtualClock",
    "VirtualLoop",
    "cluster",
    "open_link",
    "run",
]
_ROOMS = {
    "blocking": ("Cluster", "Node"),
    "clusters": ("AsyncCluster", "PlannedCluster", "cluster"),
    "link": ("Link", "open_link"),
    "loop": ("NothingLeft", "VirtualClock", "VirtualLoop", "run"),
    "nodes": ("AsyncNode", "NotFrozen", "NotStarted"),
}


def __getattr__(name: str) -> object:
    for room, names in _ROOMS.items():
        if name in names:
            value: object = getattr(import_module(f"bolide.testing.{room}"), name)
            globals()[name] = value
            return value
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
