"""RocketMQ 5's own clients (gRPC: Java 5.2.0, Python 5.1.2) at a broker that asks everybody for a name.

The right key does what its user may. Another secret, a name that nobody has, no key and the topic of others do not.
"""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from bolide.protocol.bodies.access import Acl, AclEntry, AclPolicy, User
from interop.cluster import Station, bolide_up
from interop.grpc_flows import claims
from interop.process import await_that
from interop.release import grpc_java, grpc_python
from interop.test_access import TIMEOUT_S, USER, USER_SECRET, USERS, signed_call
from interop.test_grpc import grpc_endpoint
from interop.wire import queue_counts

CLIENTS = {"java": "Java", "python": "Python"}
RIGHT = (USER, USER_SECRET)
WRONG: dict[str, tuple[str, ...]] = {
    "another secret": (USER, "another-secret-1"),
    "a name that nobody has": ("nobody", USER_SECRET),
    "no key": (),
}
UNKNOWN, FORBIDDEN = 40100, 40300


@pytest.fixture(scope="module")
def endpoint(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A gRPC port, and a user that may use the topics `Java` and `Python` alone, each with its group."""
    directory = tmp_path_factory.mktemp("grpc-access")
    with bolide_up(directory, {**USERS, "grpcServerPort": 0}) as up:
        signed_call(up, 3001, {"username": USER}, User(password=USER_SECRET).encode())
        rights = [(f"Topic:{name}", ["Pub", "Sub"]) for name in CLIENTS.values()]
        rights += [(f"Group:{name}-cg", ["Sub"]) for name in CLIENTS.values()]
        entries = [AclEntry(actions=actions, decision="Allow", resource=name) for name, actions in rights]
        acl = Acl(subject=f"User:{USER}", policies=[AclPolicy(entries=entries, policy_type="Custom")])
        signed_call(up, 3006, {"subject": f"User:{USER}"}, acl.encode())
        for topic in (*CLIENTS.values(), "Shut"):
            _make_topic(up, topic)
        yield grpc_endpoint(directory, up)


def _make_topic(up: Station, topic: str) -> None:
    fields = {"topic": topic, "defaultTopic": "TBW102", "perm": "6", "topicFilterType": "SINGLE_TAG"}
    fields |= {"readQueueNums": "4", "writeQueueNums": "4", "topicSysFlag": "0", "order": "false"}
    signed_call(up, 17, fields)
    await_that(f"{topic} is routed", partial(queue_counts, up.namesrv_address, topic), TIMEOUT_S)


def found(directory: Path, client: str, endpoint: str, topic: str, keys: tuple[str, ...]) -> dict[str, str]:
    """What became of a send and a receive."""
    command = [*grpc_java(), endpoint, "tls"] if client == "java" else [*grpc_python(), endpoint, "guarded"]
    return claims(directory, *command, topic, *keys)


def words(client: str, code: int) -> str:
    """What a client says of a refusal; Python's keeps the code to itself."""
    return f"response-code={code}" if client == "java" else "failed to fetch topic"


@pytest.mark.short
@pytest.mark.feature("X08", "X10")
@pytest.mark.parametrize("client", CLIENTS)
def test_with_the_right_key_a_client_does_what_its_user_may_and_no_more(
    endpoint: str, tmp_path: Path, client: str
) -> None:
    assert found(tmp_path, client, endpoint, CLIENTS[client], RIGHT) == {"send": "ok", "receive": "ok"}
    refused = found(tmp_path / "shut", client, endpoint, "Shut", RIGHT)
    assert list(refused) == ["send", "receive"]
    assert all(words(client, FORBIDDEN) in why for why in refused.values()), refused


@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("who", WRONG)
def test_without_the_right_key_a_client_is_refused_and_says_so(
    endpoint: str, tmp_path: Path, client: str, who: str
) -> None:
    refused = found(tmp_path, client, endpoint, CLIENTS[client], WRONG[who])
    assert list(refused) == ["send", "receive"]
    assert all(words(client, UNKNOWN) in why for why in refused.values()), refused
