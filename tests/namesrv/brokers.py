"""Brokers as the tests announce them."""

from collections.abc import Hashable, Mapping
from typing import Any

from bolide.namesrv.entries import Announcement, QueueRow
from bolide.protocol.bodies.routes import DataVersion

RW = QueueRow(4, 4, 6)
READ_ONLY = QueueRow(4, 4, 4)
# Never one topic alone: a first registration with a single topic is refused.
TOPICS = {"T1": RW, "T2": QueueRow(8, 8, 6), "TBW102": QueueRow(8, 8, 7)}


def version(counter: int = 1, state: int = 0, timestamp_ms: int = 1_700_000_000_000) -> DataVersion:
    return DataVersion(counter=counter, state_version=state, timestamp=timestamp_ms)


def announce(
    name: str = "broker-a",
    broker_id: int = 0,
    topics: Mapping[str, QueueRow] = TOPICS,
    *,
    address: str | None = None,
    cluster: str = "DefaultCluster",
    counter: int = 1,
    state: int = 0,
    connection: Hashable = None,
    **more: Any,
) -> Announcement:
    address = address or f"{name}-{broker_id}:10911"
    return Announcement(
        cluster=cluster,
        name=name,
        address=address,
        broker_id=broker_id,
        version=version(counter, state),
        topics=topics,
        connection=f"to {address}" if connection is None else connection,
        ha_address=more.pop("ha_address", address.replace("10911", "10912")),
        **more,
    )
