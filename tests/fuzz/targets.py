"""A target for each function that the compiled kernel exports: it makes arguments of a case and asks both twins.

Arguments that come from our own code (positions, counts, settings) are kept in the range that code has; whatever was
once on a wire or a disk may be anything.
"""

import base64
import hmac
import importlib
from collections.abc import Callable
from typing import Any

from bolide import kernel
from bolide.filter.sql import SqlError, compile_sql
from bolide.kernel import plain_records
from bolide.kernel.layout import ENTRY, SendRules
from bolide.protocol.command import VERSION, Command, read_commands
from bolide.protocol.headers.send import EndTransactionRequest
from bolide.protocol.records import decode_records
from bolide.protocol.signature import verify
from bolide.proxy.messages import AckMessageRequest, SendMessageRequest
from tests.fuzz.cases import Case
from tests.kernel import general_pulls, grpc_acks, grpc_received
from tests.kernel.grpc_messages import CONFIG, as_above
from tests.protocol.http2_reading import heard

HOST, BORN = bytes([10, 0, 0, 5, 0, 0, 0x2A, 0x9F]), bytes([127, 0, 0, 1, 0, 0, 0, 9])
STORED_MS = 1_700_000_000_000
TOPICS = {b"Orders": ("Orders", 4), b"Other": ("Other", 2)}
NEXT = {("Orders", 1): 7, ("Orders", 3): 40, ("Other", 0): 2**40}
RULES = SendRules(
    store_host=HOST,
    added=b"MSG_REGION\x01R\x02CLUSTER\x01C\x02",
    json_head=b'{"code":0,"extFields":{"MSG_REGION":"R","msgId":"',
    binary_head=b"\0\x0aMSG_REGION\0\0\0\x01R",
    version=479,
    body_size_max=4096,
    is_sync=False,
    half=("RMQ_SYS_TRANS_HALF_TOPIC", 1),
)
DELAYS_MS = (1000, 5000, 10_000)
SECRET = "a secret"
VERDICTS = {b"bob\0Orders": True, b"bob\0T\0G": True}

Target = Callable[[Any], None]
targets: dict[str, Target] = {}


class Disagreement(AssertionError):
    """The two kernels gave different answers."""


class Given:
    """A case, read with care for what a parameter can be."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def data(self, name: str) -> bytes:
        value = self._case.get(name, b"")
        return value if isinstance(value, bytes) else b""

    def text(self, name: str) -> str:
        return self.data(name).decode("utf-8", "replace")

    def number(self, name: str, low: int = 0, high: int = 1 << 40) -> int:
        """The number if it may be that, else one of the range that it stands for."""
        value = self._case.get(name, 0)
        value = value if isinstance(value, int) else 0
        return value if low <= value <= high else low + value % (high - low + 1)

    def frames(self) -> tuple[bytes, list[int]]:
        """Three frames with honest lengths, whatever their headers are."""
        stream = b""
        bounds = []
        for i in "abc":
            header, body = self.data(f"header_{i}")[: 1 << 14], self.data(f"body_{i}")
            stream += (4 + len(header) + len(body)).to_bytes(4, "big")
            start = len(stream)
            stream += bytes([self.number(f"codec_{i}", 0, 2)]) + len(header).to_bytes(3, "big") + header + body
            bounds += [start, len(stream)]
        return stream, bounds

    def limits(self) -> tuple[Any, ...]:
        """log_min, near_from, most messages, most bytes, and what is near and far."""
        near = (self.number("near_size"), self.number("near_count", 0, 100))
        far = (self.number("far_size"), self.number("far_count", 0, 100))
        log_min, near_from = self.number("log_min"), self.number("near_from")
        return log_min, near_from, self.number("count_max", 0, 100), self.number("size_max"), near, far


def exported() -> dict[str, tuple[Any, Any]]:
    """Every function of the compiled kernel, with its twin; the guard of pages has none that does anything."""
    compiled = importlib.import_module("bolide.kernel.compiled")
    parts = [importlib.import_module(f"bolide.kernel.{name}") for name in kernel.PARTS if name != "plain_faults"]
    twins = {name: function for part in parts for name, function in vars(part).items() if name in kernel.__all__}
    return {
        name: (function, twins[name])
        for name, function in vars(compiled).items()
        if name in twins and getattr(function, "__module__", None) == compiled.__name__
    }


def target(run: Target) -> Target:
    targets[run.__name__] = run
    return run


def outcome(function: Any, arguments: tuple[Any, ...]) -> Any:
    try:
        return function(*arguments)
    except (ValueError, OverflowError, IndexError, TypeError, KeyError, AssertionError) as problem:
        return type(problem)
    except Exception as problem:
        if type(problem).__module__ != "struct":
            raise
        return ValueError


def alike(name: str, *arguments: Any) -> Any:
    """What both twins give, or the kind of error that both raise."""
    compiled, twin = exported_once()[name]
    found, meant = outcome(compiled, arguments), outcome(twin, arguments)
    if found != meant and not (isinstance(found, type) and isinstance(meant, type)):
        raise Disagreement(f"{name}: compiled says {found!r:.2000}\nplain says {meant!r:.2000}")
    return found


_exported: dict[str, tuple[Any, Any]] = {}


def exported_once() -> dict[str, tuple[Any, Any]]:
    if not _exported:
        _exported.update(exported())
    return _exported


# The wire


@target
def cut_frames(given: Given) -> None:
    stream = given.data("stream")
    alike("cut_frames", stream, given.number("end", 0, len(stream)), given.number("frame_size_max", 4, 1 << 24))


@target
def read_headers(given: Given) -> None:
    stream, bounds = given.frames()
    if given.number("is_cut", 0, 1):
        stream = stream[: given.number("cut_at", 0, len(stream))]
    alike("read_headers", stream, bounds)


@target
def write_frames(given: Given) -> None:
    number = given.number("number", -(1 << 31), (1 << 31) - 1)
    fields = {given.text("name"): given.text("value"), "topic": given.text("topic")}
    frame = (given.number("codec", 0, 1), number, given.number("language", 0, 13), number, number, number)
    remark = given.text("remark") or None
    alike("write_frames", [(*frame, remark, fields, given.data("body")), (*frame, None, None, b"")])


@target
def answer_routes(given: Given) -> None:
    bodies = {b"Orders": b"{}", b"": b"x", given.data("topic"): given.data("body")}
    alike("answer_routes", *given.frames(), bodies, bodies | {b"Other": b"bare"}, 479)


@target
def java_hash(given: Given) -> None:
    alike("java_hash", given.text("text"))
    alike(
        "java_hash",
        given.data("text").decode("utf-16-le", "surrogatepass" if len(given.data("text")) % 2 == 0 else "replace"),
    )


@target
def read_pulls(given: Given) -> None:
    stream, bounds = given.frames()
    found = outcome(exported_once()["read_pulls"][0], (stream, bounds))
    problem = None if isinstance(found, type) else general_pulls.disagreement(stream, bounds, found)
    if problem is not None:
        raise Disagreement(f"read_pulls: {problem:.2000}")


@target
def read_receipts(given: Given) -> None:
    alike("read_receipts", *given.frames(), {1, 7, given.number("opaque")})


@target
def read_outcomes(given: Given) -> None:
    """What it takes says what the general reader reads."""
    stream, bounds = given.frames()
    ends, left = exported_once()["read_outcomes"][0](stream, bounds)
    gone = set(left)
    taken = [place for i in range(0, len(bounds), 2) if bounds[i] not in gone for place in bounds[i : i + 2]]
    headers = [EndTransactionRequest.decode(command.fields) for command in read_commands(stream, taken)]
    meant = [
        (
            each.physical_offset,
            each.half_queue_offset,
            each.commit_or_rollback,
            each.is_from_check,
            each.producer_group.encode(),
        )
        for each in headers
    ]
    if ends != meant:
        raise Disagreement(f"read_outcomes: {ends} and {headers}")


def _derived(name: str, found: Any, at: int, tallies: list[tuple[str, int, int]]) -> None:
    """Entries, keys and counts are those that a walk over the records finds, and every record is whole."""
    records, runs, keys = found[:3]
    walked = plain_records.walk_records(records, 0, len(records), at, 1, ())
    told = (runs, keys, sum(tally[1] for tally in tallies), len(records), sum(tally[2] for tally in tallies))
    if told != (*walked[:3], walked[4], len(records)):
        raise Disagreement(f"{name}: {found!r:.2000} and {walked!r:.2000}")


@target
def encode_sends(given: Given) -> None:
    stream, bounds = given.frames()
    rules = RULES._replace(
        is_sync=bool(given.number("is_sync", 0, 1)), store_host=bytes(20) if given.number("is_ipv6", 0, 1) else HOST
    )
    at = given.number("at")
    found = exported_once()["encode_sends"][0]([(stream, bounds, BORN)], TOPICS, rules, at, STORED_MS, NEXT)
    _derived("encode_sends", found, at, found[3][1])


@target
def admit_signed(given: Given) -> None:
    """What it admits, the general path verifies, and it asks for what was judged."""
    stream, bounds = given.frames()
    state = exported_once()["signing_state"][0](SECRET.encode())
    admitted, left = exported_once()["admit_signed"][0](stream, bounds, {b"bob": state}, VERDICTS)
    if sorted(admitted + left) != bounds:
        raise Disagreement(f"admit_signed: {admitted} and {left} of {bounds}")
    for start, end in zip(admitted[::2], admitted[1::2], strict=True):
        (command,) = read_commands(stream, [start, end])
        names = [command.fields["AccessKey"], command.fields["topic" if command.code in (10, 11) else "b"]]
        names += [command.fields["consumerGroup"]] if command.code == 11 else []
        if not verify(command.fields, command.body, SECRET) or "\0".join(names).encode() not in VERDICTS:
            raise Disagreement(f"admit_signed: admitted {command}")


@target
def signing_state(given: Given) -> None:
    """A message that the standard library signs with this secret is admitted."""
    secret, body = given.data("secret"), given.data("body")[: 1 << 16]
    claimed = base64.b64encode(hmac.digest(secret, b"bobOrders" + body, "sha1")).decode()
    frame = Command(310, fields={"AccessKey": "bob", "Signature": claimed, "b": "Orders"}, body=body).encode()
    state = exported_once()["signing_state"][0](secret)
    if not exported_once()["admit_signed"][0](frame, [4, len(frame)], {b"bob": state}, VERDICTS)[0]:
        raise Disagreement(f"signing_state: {secret!r} and {body!r:.200}")


@target
def decode_headers(given: Given) -> None:
    """Two blocks of one connection, and what its table is after each."""
    tables: list[list[tuple[bytes, bytes]]] = [[], []]
    rooms = [4096, 4096]
    for name in ("first", "second"):
        found = []
        for i, function in enumerate(exported_once()["decode_headers"]):
            arguments = (given.data(name), tables[i], rooms[i], 4096, given.number("list_size_max", 0, 1 << 14))
            found.append(outcome(function, arguments))
        if found[0] != found[1] or (isinstance(found[0], tuple) and tables[0] != tables[1]):
            raise Disagreement(f"decode_headers: compiled says {found[0]!r:.2000}\nplain says {found[1]!r:.2000}")
        if isinstance(found[0], type):
            return
        rooms = [each[1] for each in found]


@target
def read_grpc_send(given: Given) -> None:
    """What it reads, the general path stores."""
    content = given.data("content")
    read = exported_once()["read_grpc_send"][0]
    found = outcome(read, (content, CONFIG.body_size_max, CONFIG.properties_size_max))
    if found is None:
        return
    (message,) = SendMessageRequest.FromString(content).messages
    if found != (meant := as_above(message)):
        raise Disagreement(f"read_grpc_send: compiled says {found!r:.2000}\nthe general path {meant!r:.2000}")


@target
def read_grpc_ack(given: Given) -> None:
    """What it reads, the general path understands."""
    content = given.data("content")
    found = outcome(exported_once()["read_grpc_ack"][0], (content,))
    if found is not None and found != (meant := grpc_acks.as_above(AckMessageRequest.FromString(content))):
        raise Disagreement(f"read_grpc_ack: compiled says {found!r:.2000}\nthe general path {meant!r:.2000}")


@target
def encode_received(given: Given) -> None:
    """What it encodes, the general path says."""
    records = given.data("records")
    arguments = (records, grpc_received.TOPIC.encode(), grpc_received.HEADS, grpc_received.INVISIBLE_MS)
    found = outcome(exported_once()["encode_received"][0], arguments)
    if found is not None and (told := grpc_received.as_told(found)) != (meant := grpc_received.as_above(records)):
        raise Disagreement(f"encode_received: compiled says {told!r:.2000}\nthe general path {meant!r:.2000}")


@target
def read_http2_calls(given: Given) -> None:
    """What it reads at once means what it means frame by frame."""
    found, meant = (heard(read, given.data("data")) for read in exported_once()["read_http2_calls"])
    if found != meant:
        raise Disagreement(f"read_http2_calls: compiled says {found!r:.2000}\nthe general path {meant!r:.2000}")


# The client


@target
def unique_ids(given: Given) -> None:
    at_ms, first = given.number("at_ms", 0, (1 << 33) - 1), given.number("first", 0, 1 << 40)
    alike("unique_ids", given.text("prefix"), at_ms, first, given.number("count", 0, 40))


def _items(given: Given) -> tuple[list[tuple[bytes, bytes, int]], list[str]]:
    flag = given.number("flag", -(1 << 31), (1 << 31) - 1)
    extras = [given.data("extra_a").decode("utf-8", "replace").encode(), b"TAGS\x01a\x02"]
    return [(given.data("body"), extra, flag) for extra in extras], [given.text("id"), "u2"]


@target
def write_sends(given: Given) -> None:
    items, ids = _items(given)
    born, opaque = given.number("born", -(1 << 62), 1 << 62), given.number("opaque", 0, 1 << 31)
    queues = [given.number("queue", -(1 << 62), 1 << 62), 1]
    alike("write_sends", given.data("head"), given.data("tail"), born, opaque, queues, items, ids)


@target
def encode_items(given: Given) -> None:
    alike("encode_items", *_items(given))


@target
def write_outcomes(given: Given) -> None:
    how, offset = given.number("how", -(1 << 63), (1 << 63) - 1), given.number("offset", -(1 << 63), (1 << 63) - 1)
    rows = [(how, offset, given.text("broker_id"), given.text("id"))]
    alike("write_outcomes", given.data("head"), given.data("tail"), given.number("opaque"), rows)


@target
def cut_records(given: Given) -> None:
    """What it takes, the general reader reads alike."""
    rows = exported_once()["cut_records"][0](given.data("log"))
    if rows is not None:
        meant = [(each.queue_offset, each.body) for each in decode_records(given.data("log"))]
        if [row[1:] for row in rows] != meant:
            raise Disagreement(f"cut_records: {rows!r:.2000} and {meant!r:.2000}")


# The store


def _stretch(given: Given) -> tuple[Any, ...]:
    log = given.data("log")
    position, end = given.number("position", -5, len(log) + 5), given.number("end", -5, len(log) + 5)
    return log, position, end, given.number("base", 0, (1 << 63) - 1)


@target
def body_crc(given: Given) -> None:
    alike("body_crc", given.data("body"))


@target
def scan_records(given: Given) -> None:
    alike("scan_records", *_stretch(given), given.number("check", 0, 2))


@target
def walk_records(given: Given) -> None:
    alike("walk_records", *_stretch(given), given.number("check", 0, 2), DELAYS_MS)


@target
def find_record(given: Given) -> None:
    alike("find_record", *_stretch(given))


@target
def seal_records(given: Given) -> None:
    alike("seal_records", given.data("log"))


@target
def encode_records(given: Given) -> None:
    int32 = (-(1 << 31), (1 << 31) - 1)
    draft = (
        given.text("topic"),
        given.number("queue_id", *int32),
        given.data("body"),
        given.data("properties"),
        given.number("flag", *int32),
        given.number("sys_flag", 0, 0x3FF),
        given.number("born_ms", -(1 << 63), (1 << 63) - 1),
        given.data("born_host"),
        given.number("times", *int32),
        given.number("prepared", -(1 << 63), (1 << 63) - 1),
    )
    usual = ("Orders", 1, b"body", b"TAGS\x01a\x02", 0, 0, 0, BORN, 0, 0)
    place = (
        given.number("at"),
        STORED_MS,
        given.data("store_host"),
        NEXT,
        DELAYS_MS,
        given.number("most", 0, 1 << 20),
    )
    alike("encode_records", [usual, draft, usual], *place)


@target
def count_entries(given: Given) -> None:
    alike("count_entries", given.data("entries"), given.number("limit", 0, (1 << 63) - 1))


def _queue(given: Given) -> tuple[bytes, int]:
    return given.text("topic").encode("utf-8", "replace"), given.number("queue", -(1 << 31), (1 << 31) - 1)


@target
def fitting_entries(given: Given) -> None:
    place = given.number("base", 0, (1 << 63) - 1), *_queue(given), given.number("offset", -(1 << 63), (1 << 63) - 1)
    alike("fitting_entries", given.data("entries"), given.data("log"), *place, bool(given.number("has_tags", 0, 1)))


@target
def heading_records(given: Given) -> None:
    entries = given.data("entries")
    chosen = [number for i in range(len(entries) // 20) for number in ENTRY.unpack_from(entries, 20 * i)[:2]]
    alike("heading_records", given.data("log"), given.number("base", -(1 << 63), (1 << 63) - 1), chosen)


def _tags(given: Given) -> frozenset[int] | None:
    return (
        frozenset([0, 97, given.number("tag", -(1 << 31), (1 << 31) - 1)]) if given.number("has_tags", 0, 1) else None
    )


@target
def select_entries(given: Given) -> None:
    alike("select_entries", given.data("entries"), _tags(given), *given.limits())


@target
def put_keys(given: Given) -> None:
    """Two files of their own, for they are written to."""
    compiled, twin = exported_once()["put_keys"]
    keys = given.data("keys")
    keys = b"".join(
        bytes([keys[i] & 0x7F]) + keys[i + 1 : i + 20] for i in range(0, len(keys), 20)
    )  # no hash is below 0
    slots, room = given.number("slots", -1, 64), given.number("room", -1, 64)
    files = [bytearray(given.data("index")) for _ in range(2)]
    found, meant = (outcome(f, (file, keys, slots, room)) for f, file in zip((compiled, twin), files, strict=True))
    if found != meant or files[0] != files[1]:
        raise Disagreement(
            f"put_keys: {found!r} and {meant!r}, {bytes(files[0])!r:.2000} and {bytes(files[1])!r:.2000}"
        )


@target
def answer_pull(given: Given) -> None:
    offset = given.number("offset", 0, 1 << 62)
    place = (
        given.number("codec", 0, 1),
        given.number("opaque", -(1 << 31), (1 << 31) - 1),
        VERSION,
        0,
        *_queue(given),
        offset,
        0,
        offset + 9,
    )
    log, base = given.data("log"), given.number("base", 0, 1 << 62)
    arguments = (*place, given.data("entries"), _tags(given), *given.limits(), log, base)
    found = outcome(exported_once()["answer_pull"][0], arguments)
    meant = outcome(general_pulls.answer, arguments)
    if found != meant:
        raise Disagreement(f"answer_pull: compiled says {found!r:.2000}\nthe general path says {meant!r:.2000}")


@target
def match_entries(given: Given) -> None:
    """Once in one go and once with a stop at every look at the time: three answers that are the same.

    Bytes that no expression has as its program must do no harm, and mean nothing.
    """
    log, base = given.data("log"), given.number("base", 0, 1 << 62)
    entries, program, limits = given.data("entries"), given.data("program"), given.limits()
    ask = bool(given.number("ask", 0, 1))
    compiled, _ = exported_once()["match_entries"]
    if given.number("is_raw", 0, 1):
        outcome(compiled, (entries, program, lambda text: ask, None, {}, *limits, log, base, 0, 0))
        return
    try:
        predicate = compile_sql(given.text("expression"))
    except SqlError:
        return
    program = predicate.program
    whole = alike("match_entries", entries, program, predicate.passes, None, {}, *limits, log, base, 0, 0)
    stalled: dict[int, bytes] = {}
    if not isinstance(whole, tuple):
        return
    chosen: list[int] = []
    seen = 0
    for _ in range(10_000):
        more, some, is_over = compiled(
            *(entries[20 * seen :], program, predicate.passes, lambda: True, stalled, *limits, log, base),
            *(len(chosen) // 2, sum(chosen[1::2])),
        )
        chosen += more
        seen += some
        if not is_over or (not some and not stalled) or seen >= whole[1]:
            break
    if chosen != whole[0]:
        raise Disagreement(f"match_entries: with stops {chosen}, without {whole}")


# What waits, and transactions


@target
def redeliver_records(given: Given) -> None:
    log, base, entries = given.data("log"), given.number("base", 0, 1 << 62), given.data("entries")
    stamp = given.number("stamp", -1, STORED_MS)
    recalled = frozenset([given.data("recalled")])
    how = (HOST, stamp, bool(given.number("rolls", 0, 1)), recalled, given.number("size_max"), 1 << 20, STORED_MS, NEXT)
    alike("redeliver_records", log, base, entries, *how)


@target
def encode_units(given: Given) -> None:
    log, base, entries = given.data("log"), given.number("base", 0, 1 << 62), given.data("entries")
    step, roll = given.number("step", 0, 10_000), given.number("roll", 3, 5000)
    place = (given.number("now", 0, STORED_MS), roll, given.number("at"), given.number("room", 0, 1 << 20))
    alike("encode_units", log, base, entries, given.data("wheel"), step, *place)


@target
def walk_units(given: Given) -> None:
    units, base, step = given.data("units"), given.number("base"), given.number("step", 1, 10_000)
    position = given.number("position", -2, 1 << 41)
    alike("walk_units", units, base, position, step, given.number("slot", 0, 1 << 50), given.number("most", 0, 1000))


@target
def encode_outcomes(given: Given) -> None:
    log, base = given.data("log"), given.number("base", 0, 1 << 62)
    number = (0, 10**18 - 1)
    end = (given.number("physical", *number), given.number("offset", *number), given.number("how", 0, 12), False)
    ends = [(*end, given.data("group")), (base, 17, 8, False, b"pg"), (base, 17, 12, True, b"pg")]
    half = (
        given.data("entries"),
        given.number("first", 0, 1 << 40),
        given.data("marks"),
        given.number("mark", 0, 1 << 40),
    )
    place = (given.number("size_max"), HOST, 1 << 20, STORED_MS, NEXT)
    limit = base + given.number("log_end", 0, 1 << 20)
    found = exported_once()["encode_outcomes"][0](ends, log, base, limit, *half, *place)
    _derived("encode_outcomes", found, place[2], found[3][2])


# Pipelines


@target
def spread_records(given: Given) -> None:
    wanted = ["topic", "msg_id", "keys", "tags", "properties", "body", "queue_id", "born_us", "store_us", "body_size"]
    wanted = [name for i, name in enumerate(wanted) if given.number("wanted", 0, 1023) >> i & 1]
    topics = frozenset([b"Orders"]) if given.number("has_topics", 0, 1) else None
    tags = frozenset([b"a"]) if given.number("has_tags", 0, 1) else None
    log, position, end, base = _stretch(given)
    base = -1 if given.number("is_unplaced", 0, 1) else base
    how = (given.number("check", 0, 2), wanted, given.number("rows", 0, 100), given.number("size_max"), topics, tags)
    alike("spread_records", log, position, end, base, *how, 0, given.number("until", 0, 1 << 62))


@target
def encode_rows(given: Given) -> None:
    def column(name: str) -> tuple[bytes | None, bytes, bytes] | None:
        offsets = given.data(f"{name}_offsets")
        valid = given.data(f"{name}_valid") or None
        return (valid, offsets[: len(offsets) // 4 * 4], given.data(f"{name}_values")) if offsets else None

    bodies, names, values = column("bodies"), column("names"), column("values")
    if bodies is None or not bodies[1]:
        bodies = None, bytes(4), b""  # no rows: there is one place more than rows
    pairs = column("pairs")
    maps = (*pairs[:2], names, values) if pairs and names and values else None
    order = given.data("order")
    order_of = order[: len(order) // 8 * 8] if given.number("has_order", 0, 1) else None
    count = len(order_of) // 8 if order_of is not None else max(len(bodies[1]) // 4 - 1, 0)
    ids = [given.text("id")] * count
    texts = (bodies, column("tags"), column("keys"), maps, column("labels"))
    alike("encode_rows", order_of, given.number("first"), b"ROW\x01", *texts, frozenset([b"TAGS"]), ids)
