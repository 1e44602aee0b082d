"""Groups in an etcd that several controllers share: a key for each name, changed by transactions alone.

Every change is one transaction: if the key still has the revision that was read, and the leader's key was created when
this controller created it, then put. etcd refuses a controller that was deposed and does not know it; neither its locks
nor any clock is trusted. The leader's key hangs on a lease of three seconds, which only chooses whom 1005 names.
Without a majority of etcd's nodes nothing is read or written: brokers go on as they are, roles and sets stand still.

The client (`etcd3gw`) blocks, so it runs in threads, each with a connection of its own; the lease has one for itself,
so that slow calls do not cost the lead. A node that does not answer in time is left for the next one. A call that was
made twice because of that is harmless: the second of two equal transactions finds another revision.
"""

import asyncio
import base64
import json
import logging
import re
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar
from urllib.parse import urlsplit

from bolide.clock import Clock
from bolide.controller.config import ControllerConfig
from bolide.controller.elections import ReplicaGroup
from bolide.controller.register import ABSENT, Kept, Node, Unreachable, decode_group, encode_group
from bolide.errors import ConfigError

LEASE_S = 3
STEP_S = 0.5
# Versions that could lose the agreement of their nodes after a crash (etcd's own advice is not to run them).
_FAULTY = re.compile(r"3\.5\.[0-5](?![0-9])")
_THREADS = 4
T = TypeVar("T")
log = logging.getLogger(__name__)


class EtcdRegister:
    """The groups of all controllers that name the same etcd and the same group."""

    def __init__(self, config: ControllerConfig, clock: Clock) -> None:
        self._etcd = _Etcd(config)
        self._clock = clock
        self._prefix = f"/bolide/controller/{config.group}/"
        self._threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="controller.etcd")
        self._lease_thread = ThreadPoolExecutor(1, thread_name_prefix="controller.lease")
        self._node = Node("", "")
        self._lease = ""
        self._leads_until_s = 0.0
        self._created = ABSENT  # the create revision of the leader's key while that is ours
        self._leader: Node | None = None
        self._peers: list[Node] = []

    @property
    def leader(self) -> Node | None:
        return self._leader

    @property
    def is_leader(self) -> bool:
        return self._created != ABSENT and self._clock.monotonic_s() < self._leads_until_s

    @property
    def peers(self) -> list[Node]:
        return self._peers or [self._node]

    async def join(self, node: Node) -> None:
        self._node = node
        await self._in_thread(self._lease_thread, self._etcd.check_versions)

    async def lead_forever(self, changed: Callable[[], None]) -> None:
        told: tuple[Node | None, bool] = (None, False)
        is_reached = True
        while True:
            try:
                await self._in_thread(self._lease_thread, self._step)
                if not is_reached:
                    log.info("etcd is back")
                is_reached = True
            except Unreachable as problem:
                if is_reached:
                    log.warning("etcd is out of reach, roles stand still: %s", problem)
                is_reached = False
            now = self._leader, self.is_leader
            if now != told:
                log.info("leader is %s%s", now[0].address if now[0] else "unknown", ", this one" if now[1] else "")
                told = now
                changed()
            await asyncio.sleep(STEP_S)

    def _step(self) -> None:
        """Keep the lease, try for the lead, and see who has it."""
        asked_s = self._clock.monotonic_s()
        if not self._lease or not self._etcd.keep_alive(self._lease):
            self._created, self._lease = ABSENT, self._etcd.grant(LEASE_S)
            self._etcd.call("kv/put", {**self._own_put("peers/" + self._node.id)})
        key = self._key("leader")
        answer = self._etcd.call(
            "kv/txn",
            {
                "compare": [_is(key, "CREATE", "create_revision", ABSENT)],
                "success": [{"request_put": self._own_put("leader")}],
                "failure": [{"request_range": {"key": key}}],
            },
        )
        if answer.get("succeeded"):
            self._leader, self._created = self._node, int(answer["header"]["revision"])
        else:
            (found,) = answer["responses"][0]["response_range"]["kvs"]
            is_own = str(found.get("lease", "0")) == self._lease
            self._leader, self._created = _node_of(found), int(found["create_revision"]) if is_own else ABSENT
        self._leads_until_s = asked_s + LEASE_S
        self._peers = sorted(_node_of(found) for found in self._etcd.below(self._prefix + "peers/"))

    def _own_put(self, name: str) -> dict[str, str]:
        return {"key": self._key(name), "value": _encode(json.dumps(self._node._asdict())), "lease": self._lease}

    async def read(self, name: str) -> Kept:
        answer = await self._call("kv/range", {"key": self._key("names/" + name)})
        found = answer.get("kvs", [])
        if not found:
            return Kept(None, ABSENT)
        return Kept(decode_group(_decode(found[0]["value"]), f"etcd's key of {name!r}"), int(found[0]["mod_revision"]))

    async def groups(self) -> list[ReplicaGroup]:
        prefix = self._prefix + "names/"
        found = await self._in_thread(self._threads, lambda: self._etcd.below(prefix))
        return [decode_group(_decode(each["value"]), f"etcd's key {_decode(each['key'])!r}") for each in found]

    async def write(self, name: str, group: ReplicaGroup | None, revision: int) -> bool:
        if not self.is_leader:
            return False
        key = self._key("names/" + name)
        if group is None:
            act: dict[str, Any] = {"request_delete_range": {"key": key}}
        else:
            act = {"request_put": {"key": key, "value": _encode(encode_group(group))}}
        compare = [
            _is(key, "MOD", "mod_revision", revision),
            _is(self._key("leader"), "CREATE", "create_revision", self._created),
        ]
        return bool((await self._call("kv/txn", {"compare": compare, "success": [act]})).get("succeeded"))

    async def close(self) -> None:
        if self._lease:
            try:
                lease, self._lease, self._created = self._lease, "", ABSENT
                await self._in_thread(self._lease_thread, lambda: self._etcd.call("lease/revoke", {"ID": lease}))
            except Unreachable as problem:
                log.warning("the lead was not given up, it runs out in %d s: %s", LEASE_S, problem)
        self._threads.shutdown(wait=False, cancel_futures=True)
        self._lease_thread.shutdown(wait=False, cancel_futures=True)

    def _key(self, name: str) -> str:
        return _encode(self._prefix + name)

    async def _call(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        return await self._in_thread(self._threads, lambda: self._etcd.call(path, payload))

    async def _in_thread(self, threads: ThreadPoolExecutor, act: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(threads, act)


class _Etcd:
    """etcd's nodes behind one call, which tries them one after another."""

    def __init__(self, config: ControllerConfig) -> None:
        try:
            import etcd3gw
        except ImportError:
            why = "the client of etcd is not installed; install it with: pip install 'bolide[etcd]'"
            raise ConfigError("bolideEtcdEndpoints", config.etcd_endpoints, why) from None
        self._library = etcd3gw
        self._problem: type[Exception] = etcd3gw.exceptions.Etcd3Exception
        self._endpoints = [_endpoint(text) for text in config.etcd_endpoints.split(",") if text.strip()]
        self._timeout_s = config.etcd_timeout_ms / 1000
        self._own = threading.local()  # a connection belongs to its thread
        self._current = 0

    def _client(self, number: int) -> Any:
        clients = self._own.__dict__.setdefault("clients", {})
        if number not in clients:
            protocol, host, port = self._endpoints[number]
            clients[number] = self._library.client(
                host=host, port=port, protocol=protocol, timeout=self._timeout_s, api_path="/v3/"
            )
        return clients[number]

    def call(self, path: str, payload: dict[str, Any]) -> dict[str, Any]:
        """Ask the first node that answers; raises Unreachable."""
        problems = []
        first = self._current
        for step in range(len(self._endpoints)):
            number = (first + step) % len(self._endpoints)
            client = self._client(number)
            try:
                answer: dict[str, Any] = client.post(client.get_url(path), json=payload)
            except (self._problem, OSError, ValueError) as problem:
                problems.append(f"{client.base_url}: {str(problem) or type(problem).__name__}")
                continue
            self._current = number
            return answer
        raise Unreachable("; ".join(problems)[:500])

    def below(self, prefix: str) -> list[dict[str, Any]]:
        """All keys with a prefix, and their values."""
        end = prefix[:-1] + chr(ord(prefix[-1]) + 1)
        found: list[dict[str, Any]] = self.call("kv/range", {"key": _encode(prefix), "range_end": _encode(end)}).get(
            "kvs", []
        )
        return found

    def grant(self, ttl_s: int) -> str:
        return str(self.call("lease/grant", {"TTL": ttl_s})["ID"])

    def keep_alive(self, lease: str) -> bool:
        """Whether the lease still was there."""
        return int(self.call("lease/keepalive", {"ID": lease}).get("result", {}).get("TTL", 0)) > 0

    def check_versions(self) -> None:
        """Raises ConfigError for a version that may lose what was agreed, and where nobody answers at all."""
        versions = {}
        problems = []
        for number, (protocol, host, port) in enumerate(self._endpoints):
            client = self._client(number)
            try:
                answer = client.session.get(f"{client.base_url}/version", timeout=self._timeout_s)
                versions[f"{protocol}://{host}:{port}"] = str(answer.json()["etcdserver"])
            except (OSError, ValueError, KeyError) as problem:
                problems.append(f"{client.base_url}: {type(problem).__name__}")
        for endpoint, version in versions.items():
            if _FAULTY.match(version):
                why = f"etcd {version} may lose what its nodes agreed on (3.5.0 to 3.5.5 are faulty); upgrade it"
                raise ConfigError("bolideEtcdEndpoints", endpoint, why)
        if not versions:
            why = f"no etcd answers there ({'; '.join(problems)[:300]}); start it, or correct --etcd"
            raise ConfigError("bolideEtcdEndpoints", ",".join(f"{p}://{h}:{n}" for p, h, n in self._endpoints), why)


def _endpoint(text: str) -> tuple[str, str, int]:
    parts = urlsplit(text.strip() if "://" in text else f"http://{text.strip()}")
    try:
        if parts.scheme in ("http", "https") and parts.hostname and not parts.path.strip("/"):
            return parts.scheme, parts.hostname, parts.port or 2379
    except ValueError:
        pass
    raise ConfigError("bolideEtcdEndpoints", text, "must be http://host:2379, several with commas between them")


def _is(key: str, target: str, field: str, revision: int) -> dict[str, Any]:
    return {"key": key, "target": target, "result": "EQUAL", field: str(revision)}


def _encode(text: str | bytes) -> str:
    return base64.b64encode(text.encode("utf-8", "surrogatepass") if isinstance(text, str) else text).decode()


def _decode(text: str) -> bytes:
    return base64.b64decode(text)


def _node_of(found: dict[str, Any]) -> Node:
    return Node(**json.loads(_decode(found["value"])))
