"""What a doctor looks at: every name server and broker, the topics and groups of a cluster, and this machine.

All is asked at once, and nothing is changed. What does not answer in time is noted in `unseen` or as the problem of the
server itself, and the rest is looked at all the same. A group's progress is looked at twice, a moment apart: so is
found what stands still.
"""

import asyncio
import os
import resource
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

from bolide.admin.admin import Admin, ProgressRow
from bolide.admin.calls import gathered
from bolide.admin.deadletters import DeadGroupRow
from bolide.admin.doctor.facts import (
    BrokerFacts,
    Facts,
    GroupFacts,
    MachineFacts,
    NamesrvFacts,
    QueueFacts,
    ShapeFacts,
    TopicFacts,
)
from bolide.admin.doctor.probes import (
    A_BROKER,
    default_user,
    delayed_due_ms,
    is_broker,
    slaves_of,
    spoken_at,
    trial_send,
)
from bolide.client.config import Credentials
from bolide.clock import Clock, SystemClock
from bolide.errors import AccessRefused, ClientError, Refusal
from bolide.model.queue import MessageQueue
from bolide.protocol.bodies.clients import ConsumeType, ProducerConnections
from bolide.protocol.bodies.routes import KVTable
from bolide.protocol.bodies.topics import TopicConfig
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.config import ConnectConfig
from bolide.settings import read_properties

LIMIT_S = 4.0
MEMBERS_S = 2.0  # a member that hangs must not take its whole group out of sight
BETWEEN_LOOKS_S = 1.0
TOPICS_MAX = 500  # are looked at one by one; more of them, and the answer would take longer than anybody waits
GROUPS_MAX = 200
HALVES_MAX = 2_000
_TOLD_MAX = 20
_OUR_VERSION = "Bolide_"
T = TypeVar("T")


class Doctor:
    """Gathers facts of one cluster."""

    def __init__(
        self,
        namesrv: str,
        *,
        credentials: Credentials | None = None,
        connect: ConnectConfig | None = None,
        clock: Clock | None = None,
        between_s: float = BETWEEN_LOOKS_S,
        tries_defaults: bool = False,
        sends: bool = False,
    ) -> None:
        """`tries_defaults` has brokers with access control asked as the users of RocketMQ's examples too.

        With `sends` each master is sent a message to BenchmarkTest, which all brokers have and anybody may send to (not
        so SELF_TEST_TOPIC); nothing else that a doctor does leaves a trace.
        """
        self._addresses = [address.strip() for address in namesrv.split(";") if address.strip()]
        self._credentials = credentials
        self._connect = connect
        self._clock = clock or SystemClock()
        self._between_s = between_s
        self._tries_defaults = tries_defaults
        self._sends = sends
        self._unseen: list[str] = []

    async def gather(self, topic: str | None = None, group: str | None = None, store: Path | None = None) -> Facts:
        """Look at everything, or at one topic and one group of it; at the machine where a store is given."""
        self._unseen = []
        namesrvs = tuple(await asyncio.gather(*map(self._namesrv, self._addresses)))
        answering = [each.address for each in namesrvs if not each.problem]
        machine = None if store is None else await asyncio.to_thread(machine_of, store)
        silent = [each.address for each in namesrvs if each.problem]
        wrong = await self._wrong(silent)
        if not answering:
            self._unseen.append("no name server answers, so neither brokers, topics nor groups were looked at")
            return Facts(
                now_ms=self._clock.now_ms(),
                namesrvs=namesrvs,
                wrong_protocols=wrong,
                machine=machine,
                unseen=tuple(self._unseen),
            )
        seats = {seat: address for each in namesrvs for seat, address in each.brokers.items()}
        async with self._admin(answering[0]) as opened:
            admin = opened.one_look()
            brokers = tuple(await asyncio.gather(*(self._broker(admin, *seat, at) for seat, at in seats.items())))
            clusters = {name: cluster for each in namesrvs for name, cluster in each.clusters.items()}
            brokers = tuple(replace(each, cluster=clusters.get(each.name, "")) for each in brokers)
            brokers = tuple(await asyncio.gather(*(self._beside(admin, each, seats) for each in brokers)))
            wrong |= await self._wrong(
                [each.address for each in brokers if each.problem and not each.is_refused], is_namesrv=False
            )
            if any(broker.is_master and not broker.problem for broker in brokers):
                are_ours = all(each.runtime.get("brokerVersionDesc", "").startswith(_OUR_VERSION) for each in brokers)
                looks = self._topics(admin, topic), self._groups(admin, group, are_ours=are_ours)
                topics, groups, undecided, brokers = await asyncio.gather(
                    *looks, self._undecided(admin), self._at_work(admin, brokers)
                )
            else:
                self._unseen.append("no master answers, so neither topics nor groups were looked at")
                topics, groups, undecided = (), (), {}
            rivals = await self._rivals(admin, answering, seats)
        return Facts(
            now_ms=self._clock.now_ms(),
            namesrvs=namesrvs,
            brokers=brokers,
            topics=topics,
            groups=groups,
            undecided_groups=undecided,
            wrong_protocols=wrong,
            rivals=rivals,
            machine=machine,
            unseen=tuple(self._unseen),
        )

    async def _at_work(self, admin: Admin, brokers: tuple[BrokerFacts, ...]) -> tuple[BrokerFacts, ...]:
        """The same with what waits at them, and with what became of a message to each master where one is sent."""
        due = dict(await self._or_nothing(delayed_due_ms(admin, self._clock.now_ms()), "delay levels"))

        async def looked_at(broker: BrokerFacts) -> BrokerFacts:
            if not broker.is_master or broker.problem:
                return broker
            broker = replace(broker, delayed_due_ms=due.get(broker.name))
            if self._sends:
                sent_ms, problem = await trial_send(admin, broker.name, self._clock)
                broker = replace(broker, sent_ms=sent_ms, send_problem=problem)
            return broker

        return tuple(await asyncio.gather(*map(looked_at, brokers)))

    async def _rivals(
        self, admin: Admin, namesrvs: list[str], seats: Mapping[tuple[str, int], str]
    ) -> dict[tuple[str, int], tuple[str, str]]:
        """Who took whose place since the first look, where both are there: a master that moved is gone from before."""
        found = {}
        for later in await asyncio.gather(*map(self._namesrv, namesrvs)):
            for seat, address in later.brokers.items():
                before = seats.get(seat, address)
                both = address != before and await is_broker(admin, before) and await is_broker(admin, address)
                if both:
                    found[seat] = (before, address)
        return found

    async def _wrong(self, silent: list[str], *, is_namesrv: bool = True) -> dict[str, str]:
        """What is spoken at addresses that do not answer as they should."""
        spoken = dict(zip(silent, await asyncio.gather(*map(spoken_at, silent)), strict=True))
        async with self._admin(";".join(self._addresses)) as admin:
            for address in [each for each in silent if is_namesrv and not spoken[each]]:
                spoken[address] = A_BROKER if await is_broker(admin, address) else ""
        return {address: kind for address, kind in spoken.items() if kind}

    async def _beside(self, admin: Admin, broker: BrokerFacts, seats: Mapping[tuple[str, int], str]) -> BrokerFacts:
        """What is asked of some brokers alone: masters that have slaves or wait for them, and those that know users."""
        has_slaves = any(name == broker.name and broker_id for name, broker_id in seats)
        is_waiting = broker.settings.get("brokerRole") == "SYNC_MASTER"
        if broker.is_master and not broker.problem and (has_slaves or is_waiting):
            broker = replace(broker, slaves=await slaves_of(admin, broker.address))
        is_guarded = broker.is_refused or "true" in map(broker.settings.get, ("authenticationEnabled", "aclEnable"))
        if self._tries_defaults and is_guarded:

            def opened(credentials: Credentials) -> Admin:
                return self._admin(self._addresses[0], credentials)

            broker = replace(broker, default_user=await default_user(opened, broker.address))
        return broker

    def _admin(self, address: str, credentials: Credentials | None = None) -> Admin:
        return Admin(
            address,
            timeout_s=LIMIT_S,
            partial=True,
            credentials=credentials or self._credentials,
            connect=self._connect,
            clock=self._clock,
        )

    async def _namesrv(self, address: str) -> NamesrvFacts:
        try:
            async with asyncio.timeout(LIMIT_S), self._admin(address) as admin:
                known = await admin.clusters()
                names = await admin.topics(with_system=True)
        except (ClientError, Refusal, TimeoutError) as problem:
            return NamesrvFacts(address=address, problem=str(problem) or "does not answer")
        seats = {
            (data.broker_name, broker_id): where
            for data in known.broker_addr_table.values()
            for broker_id, where in data.broker_addrs.items()
        }
        clusters = {name: cluster for cluster, names in known.cluster_addr_table.items() for name in names}
        return NamesrvFacts(address=address, brokers=seats, clusters=clusters, topics=frozenset(names))

    async def _broker(self, admin: Admin, name: str, broker_id: int, address: str) -> BrokerFacts:
        seat = {"name": name, "broker_id": broker_id, "address": address}
        try:
            async with asyncio.timeout(LIMIT_S):
                began_ms = self._clock.now_ms()
                runtime = KVTable.decode((await admin.ask(address, Command(RequestCode.GET_BROKER_RUNTIME_INFO))).body)
                asked_ms = self._clock.now_ms()
                settings = await admin.ask(address, Command(RequestCode.GET_BROKER_CONFIG))
        except AccessRefused as problem:
            return BrokerFacts(**seat, problem=str(problem), is_refused=True)  # type: ignore[arg-type]
        except (ClientError, Refusal, TimeoutError) as problem:
            return BrokerFacts(**seat, problem=str(problem) or "does not answer")  # type: ignore[arg-type]
        texts = read_properties(settings.body.decode("utf-8", "replace"))
        seen = {"runtime": runtime.table, "settings": texts, "asked_ms": asked_ms, "took_ms": asked_ms - began_ms}
        return BrokerFacts(**seat, **seen)  # type: ignore[arg-type]

    async def _topics(self, admin: Admin, topic: str | None) -> tuple[TopicFacts, ...]:
        """All topics with one call to each master; asked for by name are those that some master has not."""
        if topic is not None:
            return (await self._topic(admin, topic),)
        names = await self._or_nothing(admin.topics(), "topics")
        configs = dict(await self._or_nothing(admin.topic_configs(), "settings of topics"))
        masters = await self._or_nothing(admin.master_addresses(), "masters")
        odd = [name for name in names if len(configs.get(name, ())) < len(masters)]
        if len(odd) > TOPICS_MAX:
            self._unseen.append(f"{len(odd) - TOPICS_MAX} of {len(names)} topics; --topic looks at one")
        asked = await gathered({name: self._topic(admin, name) for name in odd[:TOPICS_MAX]}, LIMIT_S)
        told = {name: _topic_facts(name, configs[name]) for name in names if name not in odd}
        told |= {name: each for name, each in asked.items() if isinstance(each, TopicFacts)}
        return tuple(told[name] for name in names if name in told)

    async def _topic(self, admin: Admin, name: str) -> TopicFacts:
        shapes = await self._or_nothing(admin.topic_shapes(name), f"topic {name}")
        told = tuple(
            ShapeFacts(
                broker=broker,
                read_count=shape.read_queue_count,
                write_count=shape.write_queue_count,
                permission=shape.permission,
            )
            for broker, shape in dict(shapes).items()
        )
        why = ""
        if not told:
            try:
                await admin.route(name)
            except (ClientError, Refusal) as problem:
                why = str(problem)
        return TopicFacts(name=name, shapes=told, why_absent=why)

    async def _groups(self, admin: Admin, group: str | None, *, are_ours: bool) -> tuple[GroupFacts, ...]:
        before = await self._progress(admin, group)
        names = sorted(before, key=lambda name: (-sum(row.behind for row in before[name]), name))
        if len(names) > GROUPS_MAX:
            self._unseen.append(f"{len(names) - GROUPS_MAX} of {len(names)} groups; --group looks at one")
            names = names[:GROUPS_MAX]
        await asyncio.sleep(self._between_s)
        dead = {row.group: row for row in await self._or_nothing(admin.dead_letter_groups(), "dead letters")}
        after = await self._progress(admin, group)
        behind = {row.queue.topic for name in names for row in after.get(name, ()) if row.behind > 0}
        firsts = await self._firsts(admin, behind)
        looks = {
            name: self._group(admin, name, before[name], after.get(name, []), dead.get(name), are_ours=are_ours)
            for name in names
        }
        found = await gathered(looks, LIMIT_S)
        for name, each in found.items():
            if isinstance(each, BaseException):
                self._unseen.append(f"group {name}: {str(each) or 'no answer in time'}")
        seen = [each for each in found.values() if isinstance(each, GroupFacts)]
        return tuple(_with_firsts(each, firsts) for each in sorted(seen, key=lambda each: each.name))

    async def _progress(self, admin: Admin, group: str | None) -> dict[str, list[ProgressRow]]:
        """How far groups are: all with one call to each master, where masters tell it."""
        if group is not None:
            return {group: await self._or_nothing(admin.group_progress(group), f"group {group}")}
        names = await self._or_nothing(admin.groups(), "groups")
        try:
            async with asyncio.timeout(LIMIT_S):
                told = await admin.all_progress()
        except (ClientError, Refusal, TimeoutError):
            asked = await gathered({name: admin.group_progress(name) for name in names[:GROUPS_MAX]}, LIMIT_S)
            told = {name: rows for name, rows in asked.items() if isinstance(rows, list)}
        return {name: told.get(name, []) for name in names}

    async def _group(
        self,
        admin: Admin,
        name: str,
        before: list[ProgressRow],
        after: list[ProgressRow],
        letter: DeadGroupRow | None,
        *,
        are_ours: bool,
    ) -> GroupFacts:
        earlier = {row.queue: row.consumer_offset for row in before}
        members = await self._or_none(admin.members(name), f"members of {name}")
        connections = () if members is None else members.connection_set
        conflicts = [
            f"{each.client_id} and {each.mate_id}: {each.text}"
            for each in (() if members is None else members.bolide_conflicts or ())
        ]
        if not are_ours and len(connections) > 1:
            # Apache's brokers compare nothing: the members are asked themselves.
            rows = await self._or_nothing(admin.member_rows(name), f"what members of {name} want", MEMBERS_S)
            conflicts += [f"{row.client_id} and {row.mate}: {each}" for row in rows for each in row.differences]
        waits = await self._waits(admin, name, earlier, after) if connections else {}
        of_letters = (
            await self._or_nothing(admin.topic_shapes(f"%DLQ%{name}"), f"dead letters of {name}") if letter else {}
        )
        return GroupFacts(
            name=name,
            members=tuple((each.client_id, each.client_addr, each.version) for each in connections),
            is_pulling=members is not None and members.consume_type is ConsumeType.CONSUME_ACTIVELY,
            conflicts=tuple(conflicts),
            queues=tuple(_queue(row, earlier.get(row.queue), waits.get(row.queue)) for row in after),
            dead_count=0 if letter is None else letter.count,
            dead_last_ms=0 if letter is None else letter.last_ms,
            dead_permission=min((shape.permission for shape in dict(of_letters).values()), default=None),
            last_read_ms=max((row.last_consumed_ms for row in after), default=0),
        )

    async def _waits(
        self, admin: Admin, group: str, earlier: Mapping[MessageQueue, int], after: list[ProgressRow]
    ) -> dict[MessageQueue, int]:
        """How long the first unread message waits in queues that stood still, where others of the group moved."""
        still = {row.queue.topic for row in after if row.behind > 0 and earlier.get(row.queue) == row.consumer_offset}
        if all(earlier.get(row.queue) == row.consumer_offset for row in after):
            return {}
        found: dict[MessageQueue, int] = {}
        for topic in sorted(still):
            spans = dict(await self._or_nothing(admin.time_spans(group, topic), f"times of {group}"))
            found |= {queue: span.delay_time for queue, span in spans.items()}
        return found

    async def _undecided(self, admin: Admin) -> dict[str, int]:
        """Producer groups with half messages that nobody can be asked about."""
        counts: dict[str, int] = {}
        try:
            async with asyncio.timeout(LIMIT_S):
                async for each in admin.open_transactions():
                    counts[each.group] = counts.get(each.group, 0) + 1
                    if sum(counts.values()) >= HALVES_MAX:
                        break
                masters = await admin.master_addresses()
                return {name: count for name, count in counts.items() if not await _has_producer(admin, masters, name)}
        except (ClientError, Refusal, TimeoutError) as problem:
            self._unseen.append(f"undecided transactions: {problem}")
            return {}

    async def _firsts(self, admin: Admin, topics: Iterable[str]) -> dict[MessageQueue, int]:
        """Where the queues of topics begin in which somebody is behind."""
        found = await gathered({topic: admin.topic_queues(topic) for topic in sorted(topics)[:TOPICS_MAX]}, LIMIT_S)
        failed = [f"topic {topic}: {rows}" for topic, rows in found.items() if isinstance(rows, BaseException)]
        self._unseen += failed[:_TOLD_MAX]
        return {row.queue: row.min_offset for rows in found.values() if isinstance(rows, list) for row in rows}

    async def _or_none(self, asking: Awaitable[T], what: str, limit_s: float = LIMIT_S) -> T | None:
        try:
            async with asyncio.timeout(limit_s):
                return await asking
        except (ClientError, Refusal, TimeoutError) as problem:
            self._unseen.append(f"{what}: {str(problem) or 'no answer in time'}")
            return None

    async def _or_nothing(self, asking: Awaitable[T], what: str, limit_s: float = LIMIT_S) -> T:
        found = await self._or_none(asking, what, limit_s)
        return [] if found is None else found  # type: ignore[return-value]


async def _has_producer(admin: Admin, masters: list[str], group: str) -> bool:
    command = Command(RequestCode.GET_PRODUCER_CONNECTION_LIST, fields={"producerGroup": group})
    for address in masters:
        try:
            if ProducerConnections.decode((await admin.ask(address, command)).body).connection_set:
                return True
        except (ClientError, Refusal):
            continue  # this broker has nobody of it
    return False


def _topic_facts(name: str, configs: Mapping[str, TopicConfig]) -> TopicFacts:
    shapes = (
        ShapeFacts(
            broker=broker, read_count=each.read_queue_nums, write_count=each.write_queue_nums, permission=each.perm
        )
        for broker, each in configs.items()
    )
    return TopicFacts(name=name, shapes=tuple(shapes))


def _queue(row: ProgressRow, before: int | None, waits_ms: int | None) -> QueueFacts:
    queue = row.queue
    return QueueFacts(
        topic=queue.topic,
        broker=queue.broker_name,
        queue_id=queue.queue_id,
        end=row.broker_offset,
        committed=row.consumer_offset,
        committed_before=before,
        waits_ms=waits_ms,
    )


def _with_firsts(group: GroupFacts, firsts: Mapping[MessageQueue, int]) -> GroupFacts:
    queues = (
        replace(each, first=firsts.get(MessageQueue(each.topic, each.broker, each.queue_id))) for each in group.queues
    )
    return replace(group, queues=tuple(queues))


def machine_of(store: Path) -> MachineFacts:
    """The limits of this machine, and how long its disk takes for a sync: one small file is written, and removed."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return MachineFacts(
        open_files_max=soft,
        map_count_max=_number(Path("/proc/sys/vm/max_map_count"), 1 << 20),
        memory_free=os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"),
        fsync_ms=_fsync_ms(store),
        file_system=_file_system(store),
    )


def _number(path: Path, other: int) -> int:
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return other


def _fsync_ms(store: Path) -> float:
    probe = store / f".doctor-{os.getpid()}"
    clock = SystemClock()
    try:
        with probe.open("wb") as file:
            file.write(bytes(4096))
            file.flush()
            began_s = clock.monotonic_s()
            os.fsync(file.fileno())
            return (clock.monotonic_s() - began_s) * 1000
    except OSError:
        return 0.0  # we may not write there: then nobody is told anything of it
    finally:
        probe.unlink(missing_ok=True)


def _file_system(store: Path) -> str:
    """The kind of the longest mount point above a directory."""
    try:
        lines = Path("/proc/mounts").read_text().splitlines()
    except OSError:
        return ""
    where = str(store.resolve())
    mounts = [line.split()[1:3] for line in lines]
    above = [(point, kind) for point, kind in mounts if where == point or where.startswith(point.rstrip("/") + "/")]
    return max(above, key=lambda each: len(each[0]), default=("", ""))[1]
