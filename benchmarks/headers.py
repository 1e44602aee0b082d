"""How long does it take to read and to write a header, plain and compiled, JSON and binary, one frame or many at once?

The frames are those of a producer: a send request with the short field names and 128 bytes of body. `json` and
`msgspec` are yardsticks for the JSON header alone: they parse or write the text of each header and nothing else (no
frame, no checks, no ext fields as text), so a kernel that meets them does more in the same time. Every run reads and
writes the same frames and has to end with the same checksum.

What it does not show: sockets, irregular headers (they go through a slower reader), other requests with more or longer
fields, and what the caller then does with the tuple that it gets.

    python -m benchmarks.headers --keep
"""

import argparse
import gc
import importlib
import json
import statistics
import time
import zlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from types import ModuleType

import msgspec

from benchmarks.measure import commit, machine, publish
from bolide import kernel
from bolide.kernel import layout

QUESTION = "What does a header cost?"
BATCHES = (1, 16, 64)
FRAME_SIZE_MAX = 1 << 24
CODECS = {"JSON": layout.JSON_CODEC, "binary": layout.BINARY_CODEC}
SEND_REQUEST = 310
BODY = b"x" * 128

Step = Callable[[], int]


@dataclass(frozen=True, slots=True)
class Row:
    """One way of doing one thing; nanoseconds a header, the median of the runs and their spread."""

    what: str
    codec: str
    by: str
    batch: int
    ns: float
    spread: tuple[float, float]
    checksum: int


def frames(codec: int, count: int) -> list[layout.Frame]:
    """Sends as a Java producer makes them, each with its own opaque, queue and id."""
    return [
        (
            codec,
            SEND_REQUEST,
            layout.LANGUAGES.index("JAVA"),
            409,
            1000 + number,
            0,
            None,
            {
                "a": "please_rename_unique_group_name",
                "b": "BenchmarkTest",
                "c": "TBW102",
                "d": "4",
                "e": str(number % 4),
                "f": "0",
                "g": "1700000000000",
                "h": "0",
                "i": f"UNIQ_KEY\x017F0000010A2318B4AAC2{number:012X}\x02WAIT\x01true\x02TAGS\x01TagA",
                "j": "0",
                "k": "false",
                "m": "false",
                "n": "broker-a",
            },
            BODY,
        )
        for number in range(count)
    ]


def kernel_steps(kernel: ModuleType, codec: int, batch: int) -> dict[str, Step]:
    """One batch through the kernel: what a read of the socket costs, and what a write costs."""
    made = frames(codec, batch)
    stream = kernel.write_frames(made)

    def read() -> int:
        bounds, _, _ = kernel.cut_frames(stream, len(stream), FRAME_SIZE_MAX)
        return sum(header[4] for header in kernel.read_headers(stream, bounds))

    def write() -> int:
        return len(kernel.write_frames(made))

    return {"read": read, "write": write}


def yardstick_steps(batch: int) -> dict[str, dict[str, Step]]:
    """The same headers as bare JSON texts, through two general parsers."""
    stream = kernel.write_frames(frames(layout.JSON_CODEC, batch))
    bounds, _, _ = kernel.cut_frames(stream, len(stream), FRAME_SIZE_MAX)
    texts = [
        stream[start + 4 : start + 4 + int.from_bytes(stream[start + 1 : start + 4], "big")] for start in bounds[::2]
    ]
    documents = [json.loads(text) for text in texts]
    encode, decode = msgspec.json.Encoder().encode, msgspec.json.Decoder().decode
    return {
        "json": {
            "read": lambda: sum(json.loads(text)["opaque"] for text in texts),
            "write": lambda: sum(len(json.dumps(document, separators=(",", ":")).encode()) for document in documents),
        },
        "msgspec": {
            "read": lambda: sum(decode(text)["opaque"] for text in texts),
            "write": lambda: sum(len(encode(document)) for document in documents),
        },
    }


def measure_step(step: Step, batch: int, count: int, runs: int) -> tuple[float, tuple[float, float], int]:
    repeats = max(1, count // batch)
    times_ns, checksums = [], set()
    for _ in range(runs + 1):  # the first one warms up
        checksum = 0
        start = time.perf_counter_ns()
        for _ in range(repeats):
            checksum += step()
        times_ns.append((time.perf_counter_ns() - start) / (repeats * batch))
        checksums.add(checksum)
    if len(checksums) != 1:
        raise SystemExit(f"the runs did different work: checksums {sorted(checksums)}")
    measured = times_ns[1:]
    return statistics.median(measured), (min(measured), max(measured)), zlib.crc32(str(checksums.pop()).encode())


def kernels() -> dict[str, ModuleType]:
    """Both twins, or the plain one alone where nothing was compiled."""
    found = {"plain": importlib.import_module("bolide.kernel.plain")}
    try:
        found["compiled"] = importlib.import_module("bolide.kernel.compiled")
    except ImportError:
        print("the compiled kernel was not built: make build")
    return found


def rows(count: int, runs: int) -> list[Row]:
    measured = []
    for batch in BATCHES:
        steps = [
            (what, codec_name, kernel_name, step)
            for codec_name, codec in CODECS.items()
            for kernel_name, kernel in kernels().items()
            for what, step in kernel_steps(kernel, codec, batch).items()
        ]
        steps += [
            (what, "JSON", name, step) for name, pair in yardstick_steps(batch).items() for what, step in pair.items()
        ]
        for what, codec_name, by, step in steps:
            ns, (low, high), checksum = measure_step(step, batch, count, runs)
            measured.append(Row(what, codec_name, by, batch, round(ns, 1), (round(low), round(high)), checksum))
    return measured


def print_table(measured: list[Row]) -> None:
    print(f"{QUESTION} (ns a header, median)")
    print(f"{'':6} {'codec':7} {'by':9}" + "".join(f"{f'batch of {batch}':>13}" for batch in BATCHES))
    lines: dict[tuple[str, str, str], dict[int, float]] = {}
    for row in measured:
        lines.setdefault((row.what, row.codec, row.by), {})[row.batch] = row.ns
    for (what, codec, by), cells in sorted(lines.items()):
        print(f"{what:6} {codec:7} {by:9}" + "".join(f"{cells[batch]:>13,.0f}" for batch in BATCHES))


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=QUESTION)
    parser.add_argument("--count", type=int, default=20_000, help="headers a run")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--smoke", action="store_true", help="a hundred headers; what the tests run")
    parser.add_argument("--keep", action="store_true", help="add the answer to benchmarks/results")
    options = parser.parse_args(argv)
    if options.smoke:
        options.count, options.runs = 100, 1
    gc.disable()
    measured = rows(options.count, options.runs)
    gc.enable()
    print_table(measured)
    line = json.dumps(
        {
            "question": QUESTION,
            "rows": [asdict(row) for row in measured],
            "machine": machine(),
            "commit": commit(),
            "kernel": list(kernels()),
            "parameters": {"count": options.count, "runs": options.runs},
        }
    )
    publish(line, is_kept=options.keep)


if __name__ == "__main__":
    main()
