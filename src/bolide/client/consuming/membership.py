"""Who is in a group: any broker of a topic knows, because every member tells all of them."""

import logging

from bolide.client.instance import Instance
from bolide.client.routes import Route
from bolide.errors import BolideError
from bolide.protocol.bodies.clients import ConsumerList
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.protocol.headers.consume import GetConsumerListRequest

log = logging.getLogger(__name__)


async def members_of(instance: Instance, group: str, route: Route) -> list[str] | None:
    """The client ids of a group's members, by the first broker that answers; None when none does."""
    names = list(route.addresses)
    instance.chance.shuffle(names)
    fields = GetConsumerListRequest(consumer_group=group).encode()
    for name in names:
        address = instance.address(name, is_exact=False)
        if address is None:
            continue
        try:
            answer = await instance.ask(address, Command(RequestCode.GET_CONSUMER_LIST_BY_GROUP, fields=dict(fields)))
            return ConsumerList.decode(answer.body).consumer_id_list
        except BolideError as problem:
            log.debug("members not told broker=%s problem=%s", name, problem)
    return None
