"""Charts from a Prometheus that scrapes the brokers (`--prometheus URL`): longer and older than what we saw ourselves.

Asked with the library of Python in a thread: three small questions for a chart, at most once for each refresh of one
page. The names are those of RocketMQ 5.5's own page, so it does for Apache's brokers too.
"""

import asyncio
import json
from collections.abc import Mapping
from typing import Any
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

from bolide.dashboard.history import SPANS_S, STEPS_S, UNKNOWN
from bolide.errors import ClientError

LIMIT_S = 5.0
_ANSWER_SIZE_MAX = 8 << 20
_RATE_STEPS = 4  # a rate needs two scrapes within its window
_QUERIES = {
    "cluster": (
        "sum(rate(rocketmq_messages_in_total{%s}[%s]))",
        "sum(rate(rocketmq_messages_out_total{%s}[%s]))",
    ),
    "topic": (
        "sum(rate(rocketmq_messages_in_total{%s}[%s]))",
        "sum(rate(rocketmq_messages_out_total{%s}[%s]))",
    ),
    "group": (
        "sum(rocketmq_consumer_lag_messages{%s})",
        "max(rocketmq_consumer_lag_latency_milliseconds{%s}) / 1000",
        "sum(rate(rocketmq_messages_out_total{%s}[%s]))",
    ),
}
_LABELS = {"topic": "topic", "group": "consumer_group"}


def queries(kind: str, name: str, cluster: str, span: str) -> list[str]:
    """What to ask for each line of a chart."""
    wanted = {"cluster": cluster} if cluster else {}
    wanted |= {_LABELS[kind]: name} if kind in _LABELS else {"is_system": "false"}
    labels = ",".join(f'{label}="{_quoted(value)}"' for label, value in wanted.items())
    window = f"{max(60, _RATE_STEPS * STEPS_S[span])}s"
    return [text % ((labels, window) if "[%s]" in text else labels) for text in _QUERIES.get(kind, ())]


def _quoted(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


async def columns(url: str, asked: list[str], span: str, now_s: float) -> list[list[float]]:
    """Times and values of a chart, as `History.columns` gives them; raises ClientError with why there is nothing."""
    step_s = STEPS_S[span]
    end_s = int(now_s) // step_s * step_s
    fields = {"start": end_s - SPANS_S[span], "end": end_s, "step": step_s}
    answers = await asyncio.gather(*(asyncio.to_thread(_ask, url, {"query": each, **fields}) for each in asked))
    lines = [_line(url, answer) for answer in answers]
    times = sorted({at_s for line in lines for at_s in line})
    return [times, *([line.get(at_s, UNKNOWN) for at_s in times] for line in lines)] if times else []


def _ask(url: str, fields: Mapping[str, object]) -> bytes:
    try:
        with urlopen(f"{url.rstrip('/')}/api/v1/query_range?{urlencode(fields)}", timeout=LIMIT_S) as answer:
            found: bytes = answer.read(_ANSWER_SIZE_MAX)
            return found
    except (URLError, OSError, ValueError) as problem:
        raise ClientError(f"Prometheus at {url} does not answer: {problem}") from problem


def _line(url: str, answer: bytes) -> dict[float, float]:
    """One line: sums and maxima have one series, or none where nothing was scraped."""
    try:
        told: Any = json.loads(answer)
        rows = [row for series in told["data"]["result"] for row in series["values"]]
        return {float(at_s): float(value) for at_s, value in rows}
    except (ValueError, KeyError, TypeError) as problem:
        raise ClientError(f"Prometheus at {url} said what is not understood: {problem}") from problem
