"""How much of the name server's memory each peer may fill: what brokers register is kept as long as they are connected.

Sizes are reckoned, not measured: so much for a broker, so much for a topic and its name. A peer is a host, however many
connections it has; of IPv6 its network, for a host has as many addresses as it likes.

Rule: while there is room everybody may take, up to half of all. When there is none, anyone who would stay within an
equal share is let in, and those who hold more than theirs make room, the greediest first: their connections are closed,
they register again when there is room. So nobody who fills the tables keeps another out. Pure: values in, a decision
out.
"""

import ipaddress
from collections.abc import Collection, Mapping

from bolide.errors import Refusal
from bolide.protocol.codes import ResponseCode

BROKER_SIZE = 16 * 1024
# A row, its place in two dicts and the two strings; seen with sys.getsizeof and rounded up.
TOPIC_SIZE = 400
TOPICS_MAX = 100_000  # of one broker
UNTOLD_TOPICS_MAX = 10_000  # of one broker: those that operators added and it does not name itself
BROKERS_BY_CONNECTION_MAX = 256  # a container of brokers has one connection for all
_NETWORK_BITS = 64


def topic_size(topic: str) -> int:
    """What a topic of one broker takes."""
    return TOPIC_SIZE + len(topic)


def topics_size(topics: Collection[str]) -> int:
    """What many take; ten thousand at a time are registered, so nothing here runs for each."""
    return TOPIC_SIZE * len(topics) + sum(map(len, topics))


def peer_of(host: str) -> str:
    """Whom a host belongs to."""
    try:
        found = ipaddress.ip_address(host.partition("%")[0])
    except ValueError:
        return host
    if isinstance(found, ipaddress.IPv4Address) or found.ipv4_mapped is not None:
        return str(getattr(found, "ipv4_mapped", None) or found)
    return str(ipaddress.ip_network((found, _NETWORK_BITS), strict=False))


def make_room(sizes: Mapping[str, int], peer: str, added: int, size_max: int) -> list[str]:
    """The peers that have to leave so that `peer` may have `added` bytes more; raises Refusal if it may not."""
    total = sum(sizes.values())
    wanted = sizes.get(peer, 0) + added
    if total + added <= size_max and wanted <= size_max // 2:
        return []
    share = size_max // (len(sizes.keys() | {peer}) + 1)
    if wanted > (size_max // 2 if total + added <= size_max else share):
        raise Refusal(
            ResponseCode.SYSTEM_BUSY,
            f"{total} bytes of brokers and topics are registered, and {peer} would have {wanted} of at most {size_max} "
            "(bolideRegistrationsSizeMax at the name server); register fewer topics, or raise it there",
        )
    leaving = []
    for greedy in sorted(sizes, key=lambda one: sizes[one], reverse=True):
        if total + added <= size_max or sizes[greedy] <= share:
            break
        leaving.append(greedy)
        total -= sizes[greedy]
    return leaving
