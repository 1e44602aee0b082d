"""What does the client's kernel cost for each message?

--path send writes the frames of 64 sends, --path batch lays a batch of 64, --path receipts reads 64 answers, --path
records cuts an answer of 32 messages and makes what a consumer gets of them. No socket and no loop is in it; compare
--kernel plain and --kernel compiled. Facts: µs a message.

    python -m benchmarks.client_path --path records
"""

import time
import zlib
from collections.abc import Callable, Sequence

from benchmarks.measure import Answer, Work, measure, read_arguments

QUESTION = "How many messages a second does the client's kernel take?"
HEAD = b'{"code":310,"extFields":{"a":"bench","b":"BenchmarkTest","c":"TBW102","d":"4","n":"broker-a","e":"'
TAIL = b',"serializeTypeCurrentRPC":"JSON","version":479}'
BATCH, PULL = 64, 32


def main(argv: Sequence[str] | None = None) -> Answer:
    options = read_arguments(QUESTION, argv, path=("send", "batch", "receipts", "records"), body=128, count=200_000)
    step, step_count = _step(options.path, b"x" * options.body)
    rounds = max(options.count // step_count, 1)

    def run() -> Work:
        checksum = 0
        started_s = time.perf_counter()
        for _ in range(rounds):
            done = step()
        elapsed_s = time.perf_counter() - started_s
        checksum = zlib.crc32(done)
        count = rounds * step_count
        return Work(count, "messages", elapsed_s, checksum, {"us": 1e6 * elapsed_s / count})

    return measure(QUESTION, run, runs=options.runs, parameters=vars(options), keep=options.keep)


def _step(path: str, body: bytes) -> tuple[Callable[[], bytes], int]:
    from bolide import kernel

    items, ids = [(body, b"TAGS\x01A\x02", 0)] * BATCH, kernel.unique_ids("7F00000100010A0B0C0D", 1, 0, BATCH)
    queue_ids = [number % 4 for number in range(BATCH)]
    if path == "send":
        return lambda: kernel.write_sends(HEAD, TAIL, 1_700_000_000_000, 1, queue_ids, items, ids), BATCH
    if path == "batch":
        return lambda: kernel.encode_items(items, ids), BATCH
    if path == "receipts":
        return _receipts(kernel.read_receipts), BATCH
    return _records(body), PULL


def _receipts(read: Callable[..., tuple[list[tuple[int, int, int, str]], list[int]]]) -> Callable[[], bytes]:
    from bolide import kernel

    fields = {
        "MSG_REGION": "DefaultRegion",
        "TRACE_ON": "true",
        "msgId": "7F00000100002A9F0000000000000000",
        "queueId": "3",
        "queueOffset": "123456",
        "transactionId": "7F00000100010A0B0C0D0000000100FF",
    }
    stream = kernel.write_frames([(0, 0, 3, 479, opaque, 1, None, fields, b"") for opaque in range(BATCH)])
    bounds, _, _ = kernel.cut_frames(stream, len(stream), 1 << 24)
    expected = range(BATCH)

    def step() -> bytes:
        rows, _ = read(stream, bounds, expected)
        return b"%d" % sum(row[0] for row in rows)

    return step


def _records(body: bytes) -> Callable[[], bytes]:
    from bolide.client.consuming.pulling import decode_pulled
    from bolide.model.host import Host
    from bolide.model.message import StoredMessage
    from bolide.model.queue import PhysicalOffset, QueueOffset
    from bolide.protocol.records import encode_record

    host, properties = Host("127.0.0.1", 10911), {"TAGS": "A", "UNIQ_KEY": "7F00000100010A0B0C0D0000000100FF"}
    answer = b"".join(
        encode_record(
            StoredMessage(
                topic="BenchmarkTest",
                body=body,
                queue_id=0,
                queue_offset=QueueOffset(number),
                physical_offset=PhysicalOffset(number),
                born_at=1_700_000_000_000,
                born_host=host,
                stored_at=1_700_000_000_000,
                store_host=host,
                properties=properties,
            )
        )
        for number in range(PULL)
    )

    def step() -> bytes:
        return decode_pulled(answer, None, None)[-1].body  # type: ignore[arg-type]

    return step


if __name__ == "__main__":
    main()
