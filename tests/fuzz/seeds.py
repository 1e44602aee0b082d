"""The first cases: what each function is given in ordinary life. `--renew` writes the corpus anew from them."""

import struct
from array import array

from bolide.filter.sql import compile_sql
from bolide.kernel import plain
from bolide.kernel.layout import BLANK_CHECKSUM, ENTRY
from bolide.kernel.plain_client import encode_items
from bolide.kernel.plain_later import encode_units
from bolide.kernel.plain_records import encode_records, seal_records, walk_records
from bolide.protocol.signature import sign
from bolide.proxy.messages import SendMessageRequest
from tests.fuzz.cases import Case
from tests.fuzz.targets import BORN, HOST, SECRET, STORED_MS
from tests.kernel.grpc_acks import plain_ack
from tests.kernel.grpc_messages import plain_message

BASE = 1 << 20
HOME = b"REAL_TOPIC\x01Orders\x02REAL_QID\x013\x02"
HALF = b"TRAN_MSG\x01true\x02PGROUP\x01pg\x02UNIQ_KEY\x01u\x02" + HOME
USUAL = b"TAGS\x01a\x02KEYS\x01k1 k2\x02UNIQ_KEY\x017F00\x02a\x015\x02b\x01x\x02"
INT32_MAX = 0x7FFF_FFFF


def log_of(properties: list[bytes], topic: str = "Orders") -> tuple[bytes, bytes]:
    """Records from BASE on, and the entries of their queue."""
    drafts = [(topic, 1, b"body %d" % i, text, 7, 0, 5, BORN, 0, 0) for i, text in enumerate(properties)]
    records, places, *_ = encode_records(drafts, BASE, STORED_MS, HOST, {(topic, 1): 17}, (), 1 << 20)
    ends = [*places, BASE + len(records)][1:]
    return records, b"".join(ENTRY.pack(at, end - at, 97) for at, end in zip(places, ends, strict=True))


def _header(code: int, fields: dict[str, str], codec: int = 0, flag: int = 0) -> bytes:
    frame = plain.write_frames([(codec, code, 3, 479, 7, flag, None, fields, b"")])
    return frame[8:]


def _frames(*headers: bytes, codec: int = 0, body: bytes = b"hello") -> Case:
    case: Case = {}
    for name, header in zip("abc", headers, strict=True):
        case |= {f"header_{name}": header, f"body_{name}": body, f"codec_{name}": codec}
    return case


def _signed(fields: dict[str, str]) -> dict[str, str]:
    fields = fields | {"AccessKey": "bob"}
    return fields | {"Signature": sign(fields, b"hello", SECRET)}


def _grpc_sends() -> list[bytes]:
    plain, full = plain_message(), plain_message()
    system = full.system_properties
    system.tag, system.queue_id = "red", 3
    system.keys.extend(["one", "two"])
    grouped = plain_message()
    grouped.system_properties.message_group = "g"
    requests = [SendMessageRequest(messages=messages) for messages in ([plain], [full], [grouped], [plain, full])]
    return [request.SerializeToString() for request in requests]


def wire() -> dict[str, list[Case]]:
    """What comes from sockets, in both codecs."""
    found: dict[str, list[Case]] = {}
    names = ["pg", "Orders", "TBW102", "4", "1", "0", "1700000000000", "0", USUAL.decode(), "0", "false", "16", "false"]
    item = encode_items([(b"one", b"TAGS\x01a\x02", 3), (b"two", b"", 0)], ["u1", "u2"])
    pull = {"consumerGroup": "G", "topic": "T", "queueId": "3", "queueOffset": "12", "maxMsgNums": "32", "sysFlag": "3"}
    pull |= {"commitOffset": "-1", "suspendTimeoutMillis": "15000", "subVersion": "1", "subscription": "A || B"}
    end = {"producerGroup": "pg", "tranStateTableOffset": "17", "commitLogOffset": str(BASE), "commitOrRollback": "8"}
    end |= {"fromTransactionCheck": "false", "msgId": "7F00"}
    receipt = {"msgId": "0A000005", "queueId": "3", "queueOffset": "123456789012345678"}
    for codec in (0, 1):
        short = dict(zip("abcdefghijklm", names, strict=True))
        half = short | {"i": HALF.decode(), "f": "4"}
        batch = _header(320, short | {"m": "true"}, codec)
        sends = _frames(_header(310, short, codec), _header(310, half, codec), batch, codec=codec)
        found.setdefault("encode_sends", []).append(sends | {"body_c": item, "at": 4096, "is_sync": 0, "is_ipv6": 0})
        pulls = _frames(_header(11, pull, codec), _header(361, pull | {"maxMsgBytes": "9"}, codec), batch, codec=codec)
        found.setdefault("read_pulls", []).append(pulls)
        ends = _frames(
            _header(37, end, codec, 2), _header(37, end | {"commitOrRollback": "12"}, codec, 2), batch, codec=codec
        )
        found.setdefault("read_outcomes", []).append(ends)
        receipts = _frames(
            _header(0, receipt, codec, 1), _header(0, receipt, codec, 1), _header(1, {}, codec, 1), codec=codec
        )
        found.setdefault("read_receipts", []).append(receipts | {"opaque": 7})
        both = [_header(code, _signed(fields), codec) for code, fields in ((310, short), (11, pull))]
        found.setdefault("admit_signed", []).append(_frames(*both, batch, codec=codec))
        routes = _frames(
            _header(105, {"topic": "Orders"}, codec),
            _header(105, {"topic": "T", "acceptStandardJsonOnly": "true"}, codec),
            batch,
            codec=codec,
        )
        found.setdefault("answer_routes", []).append(routes | {"topic": b"T", "body": b"{1:2}"})
        found.setdefault("read_headers", []).append(
            _frames(batch, _header(1, {"x": 'é"\n'}, codec, 1), b"{}", codec=codec) | {"is_cut": 0, "cut_at": 9}
        )
    frame = plain.write_frames([(0, 310, 3, 479, 7, 0, "why", {"a": "b"}, b"body")])
    found["cut_frames"] = [{"stream": frame * 3, "end": 3 * len(frame), "frame_size_max": 1 << 24}]
    found["write_frames"] = [
        {
            "codec": codec,
            "number": 7,
            "language": 3,
            "name": b"x",
            "value": b'\xc3\xa9"\n',
            "topic": b"T",
            "remark": b"r",
            "body": b"b",
        }
        for codec in (0, 1)
    ]
    found["signing_state"] = [{"secret": b"a secret", "body": b"hello"}, {"secret": b"k" * 65, "body": b"b" * 64}]
    packed = bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff408825a849e95ba97d7f8925a849e95bb8e8b4bf")
    found["decode_headers"] = [
        {"first": packed, "second": b"\x82\xbe\xbf", "list_size_max": 1 << 14},
        {"first": b"\x3f\xe1\x1f\x82\x00\x04name\x05value", "second": b"\x20\x83", "list_size_max": 1 << 14},
        {"first": b"\x0f\x10\x10application/grpc\x40\x01a\x01b", "second": b"\xbe\x10\x01c\x00", "list_size_max": 500},
    ]
    found["read_grpc_send"] = [{"content": content} for content in _grpc_sends()]
    acks = [plain_ack(), plain_ack("7 1700000000000 30000 3 1 b 0 9"), plain_ack("")]
    found["read_grpc_ack"] = [{"content": ack.SerializeToString()} for ack in acks]
    odd = [b"UNIQ_KEY\x017F00\x02", b"UNIQ_KEY\x017F00\x02__SHARDINGKEY\x01g\x02"]
    found["encode_received"] = [{"records": log_of(texts)[0]} for texts in ([USUAL], [USUAL, USUAL], odd)]
    call = b"\0\0%c\1\4\0\0\0\1" % len(packed) + packed + b"\0\0\4\0\1\0\0\0\1data"
    ping, window = b"\0\0\x08\6\0\0\0\0\x0012345678", b"\0\0\4\x08\0\0\0\0\0\0\0\0\5"
    found["read_http2_calls"] = [{"data": call}, {"data": window + ping + call + ping}, {"data": call + call}]
    found["java_hash"] = [{"text": b"TagA"}, {"text": "标签".encode()}]
    return found


def client() -> dict[str, list[Case]]:
    """What the client writes and reads."""
    item: Case = {"body": b"hello", "extra_a": b"TAGS\x01a\x02", "flag": 3, "id": b"7F00"}
    ends: Case = {
        "head": b'{"code":37,"extFields":{',
        "tail": b"}",
        "opaque": 7,
        "broker_id": b"0A00000500002A9F0000000000001000",
    }
    log, _ = log_of([USUAL, b""])
    return {
        "unique_ids": [{"prefix": b"0A000001", "at_ms": 77, "first": 65_530, "count": 9}],
        "write_sends": [
            item | {"head": b'{"code":310,"extFields":{"e":"', "tail": b"}", "born": STORED_MS, "opaque": 7, "queue": 3}
        ],
        "encode_items": [item],
        "write_outcomes": [ends | {"how": 8, "offset": 17, "id": b"7F00"}],
        "cut_records": [{"log": log}],
    }


def store() -> dict[str, list[Case]]:
    """What lies on a disk."""
    log, entries = log_of([USUAL, b"", HOME + b"KEYS\x01k\x02"])
    long, _ = log_of([USUAL], "%RETRY%" + "g" * 150)
    sealed = seal_records(log_of([USUAL + BLANK_CHECKSUM, BLANK_CHECKSUM])[0])
    limits: Case = {"near_size": 1 << 20, "near_count": 32, "far_size": 1 << 18, "far_count": 8, "log_min": 0}
    limits |= {"near_from": BASE, "count_max": 32, "size_max": 1 << 20}
    stretches: list[Case] = [
        {"log": each, "position": 0, "end": len(each), "base": BASE, "check": 1} for each in (log, long, sealed)
    ]
    index = struct.pack(">qqqqii", 50_000, 56_000, 1000, 1004, 1, 2) + bytes(8 * 4 + 10 * 20)
    keys = b"".join(struct.pack(">iqq", hashed, 1000 + i, STORED_MS + 1500 * i) for i, hashed in enumerate((3, 11, 5)))
    pulled = limits | {"entries": entries, "log": log, "base": BASE, "offset": 17, "codec": 0, "opaque": 7}
    queue: Case = {"topic": b"Orders", "queue": 1}
    first = b"".join(ENTRY.pack(at, 40, 97) for at in (0, 40, 80))  # of the first segment, which begins at 0
    programs = [
        "a > 4 AND b IN ('x', 'y')",
        "NOT (a CONTAINS 'z') OR b = 'x' OR a BETWEEN 1 AND 9",
        "a > 1.5 AND c IS NULL",
    ]
    draft: Case = {"topic": b"Orders", "queue_id": 1, "body": b"body", "properties": USUAL, "flag": 1, "sys_flag": 0}
    draft |= {
        "born_ms": 5,
        "born_host": BORN,
        "times": 0,
        "prepared": 0,
        "at": BASE,
        "store_host": HOST,
        "most": 1 << 20,
    }
    fitting: Case = queue | {"offset": 17, "base": BASE, "has_tags": 1}
    tagged = walk_records(log, 0, len(log), BASE, 1, ())[0][0][3]
    spread: Case = {
        "wanted": 1023,
        "has_topics": 0,
        "has_tags": 0,
        "is_unplaced": 0,
        "rows": 100,
        "size_max": 1 << 20,
        "until": 1 << 50,
    }
    return {
        "body_crc": [{"body": bytes(range(200))}],
        **{name: list(stretches) for name in ("scan_records", "walk_records", "find_record")},
        "seal_records": [{"log": sealed}],
        "encode_records": [draft, draft | {"topic": b"SCHEDULE_TOPIC_XXXX", "properties": b"DELAY\x013\x02"}],
        "count_entries": [{"entries": entries, "limit": BASE + len(log)}],
        "fitting_entries": [
            fitting | {"entries": given, "log": found}
            for given, found in (
                (entries, log),
                (tagged, log),
                (walk_records(long, 0, len(long), BASE, 1, ())[0][0][3], long),
            )
        ],
        "heading_records": [{"entries": entries, "log": log, "base": BASE}],
        "select_entries": [limits | {"entries": entries, "has_tags": 1, "tag": 5}],
        "put_keys": [{"index": index, "keys": keys, "slots": 8, "room": 10}],
        "answer_pull": [
            pulled | queue | {"has_tags": 0, "tag": 5},
            pulled | queue | {"entries": first, "base": 0, "has_tags": 0},
            pulled | queue | {"codec": 1, "has_tags": 1, "tag": 97},
        ],
        "match_entries": [
            pulled | {"expression": text.encode(), "program": compile_sql(text).program, "is_raw": i % 2, "ask": 1}
            for i, text in enumerate(programs * 2)
        ],
        "spread_records": [each | spread for each in stretches]
        + [stretches[0] | spread | {"is_unplaced": 1, "has_topics": 1}],
    }


def waiting() -> dict[str, list[Case]]:
    """What waits for its time or for the end of its transaction, and what pipelines write."""
    log, entries = log_of([HOME + b"DELAY\x013\x02", HOME + b"UNIQ_KEY\x01u1\x02", USUAL], "SCHEDULE_TOPIC_XXXX")
    timed, timed_entries = log_of(
        [HOME + b"TIMER_OUT_MS\x01%d\x02" % (STORED_MS + ms) for ms in (5000, 99_000, 0)], "rmq_sys_wheel_timer"
    )
    wheel = bytes(32 * 64)
    units = encode_units(timed, BASE, timed_entries, wheel, 1000, STORED_MS, 600, 1 << 20, 1 << 20)[0]
    halves, half_entries = log_of([HALF, HALF], "RMQ_SYS_TRANS_HALF_TOPIC")
    numbers = array("i", [0, 3, 7]).tobytes()
    rows: Case = {f"{name}_offsets": numbers for name in ("bodies", "tags", "keys", "labels", "names", "values")}
    rows |= {f"{name}_values": b"abcdefgh" for name in ("bodies", "tags", "keys", "names", "values")}
    rows |= {
        "labels_values": b"l\x01m\x02n\x01\x02",
        "pairs_offsets": array("i", [0, 1, 2]).tobytes(),
        "tags_valid": b"\x01",
    }
    rows |= {"order": array("q", [1, 0]).tobytes(), "has_order": 0, "first": 5, "id": b"7F00"}
    due: Case = {
        "log": log,
        "base": BASE,
        "entries": entries,
        "size_max": 1 << 20,
        "stamp": -1,
        "rolls": 0,
        "recalled": b"u1",
    }
    filing: Case = {"log": timed, "base": BASE, "entries": timed_entries, "wheel": wheel, "step": 1000, "roll": 600}
    ended: Case = {
        "log": halves,
        "base": BASE,
        "log_end": len(halves),
        "entries": half_entries,
        "first": 17,
        "marks": b"\0\0",
    }
    return {
        "redeliver_records": [due, due | {"stamp": STORED_MS}, due | {"stamp": STORED_MS, "rolls": 1}],
        "encode_units": [filing | {"now": STORED_MS, "at": 1 << 20, "room": 1 << 20}],
        "walk_units": [
            {"units": units, "base": 1 << 20, "position": (1 << 20), "step": 1000, "slot": STORED_MS + 5000, "most": 9}
        ],
        "encode_outcomes": [
            ended | {"mark": 17, "physical": BASE, "offset": 17, "how": 8, "group": b"pg", "size_max": 1 << 20}
        ],
        "encode_rows": [rows, rows | {"has_order": 1}],
    }


def seeds() -> dict[str, list[Case]]:
    return wire() | client() | store() | waiting()
