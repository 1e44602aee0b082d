"""Addresses as the asker must write them: brokers beside this name server are where it reached us.

A broker on the name server's own machine may know itself as 127.0.0.1, which is no use to an asker from elsewhere. But
anyone who asks has just shown by which address this machine is reached, so an address with the host that is ours
(`own`) is answered with the host of the asker's own connection. `bolide up` works this way from other machines without
a word of configuration; a broker whose owner named its address (brokerIP1) is never touched. Pure: values in, values
out.
"""

import msgspec

from bolide.protocol.bodies.routes import BrokerMembers, BrokerRoute, Clusters, TopicRoute


class Nearness:
    """What one asker sees instead of our own host; made for one request."""

    __slots__ = ("_own", "_seen")

    def __init__(self, own: str, seen: str) -> None:
        self._own = f"{own}:"
        self._seen = f"{seen}:"

    def address(self, address: str) -> str:
        port = address.removeprefix(self._own)
        return self._seen + port if port != address and port.isdigit() else address

    def broker(self, broker: BrokerRoute) -> BrokerRoute:
        return msgspec.structs.replace(broker, broker_addrs=self._addresses(broker.broker_addrs))

    def route(self, route: TopicRoute) -> TopicRoute:
        filter_servers = {
            self.address(address): [self.address(server) for server in servers]
            for address, servers in route.filter_server_table.items()
        }
        brokers = [self.broker(broker) for broker in route.broker_datas]
        return msgspec.structs.replace(route, broker_datas=brokers, filter_server_table=filter_servers)

    def clusters(self, clusters: Clusters) -> Clusters:
        table = {name: self.broker(broker) for name, broker in clusters.broker_addr_table.items()}
        return msgspec.structs.replace(clusters, broker_addr_table=table)

    def members(self, members: BrokerMembers) -> BrokerMembers:
        return msgspec.structs.replace(members, broker_addrs=self._addresses(members.broker_addrs))

    def _addresses(self, addresses: dict[int, str]) -> dict[int, str]:
        return {id_: self.address(address) for id_, address in addresses.items()}


def nearness(own: str | None, local: str) -> Nearness | None:
    """For an asker whose connection has `local` at our end; None where there is nothing to change."""
    seen = local.rpartition(":")[0]
    return Nearness(own, seen) if own is not None and seen and seen != own else None
