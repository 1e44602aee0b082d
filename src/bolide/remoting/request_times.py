"""How long requests took, by what was asked and answered: the counters of every server.

Request codes come from strangers: those that nobody knows are one.
"""

from collections.abc import Callable, Iterator

from bolide.metrics.page import Family, Page, Sample, labels
from bolide.metrics.values import Histogram
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.remoting.owner import Request

MS_BOUNDS = (1, 3, 5, 7, 10, 100, 1_000, 2_000, 3_000)
TIMES = Family(
    "rocketmq_rpc_latency_milliseconds",
    "histogram",
    "From the arrival of a request to its answer; one that was held waited for a message.",
    MS_BOUNDS,
)
REFUSED = Family("bolide_refused_requests_total", "counter", "Requests answered with another code than they hoped for.")
SUCCEEDED, ONEWAY, FAILED = "success", "oneway", "process_request_failed"
UNKNOWN_CODE = -1
_KNOWN_CODES = frozenset(int(code) for code in RequestCode)
_KNOWN_ANSWERS = frozenset(int(code) for code in ResponseCode)
# Answers that say that there is nothing yet, or where to go on: no refusal.
_EXPECTED = frozenset(
    {
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.NO_MESSAGE,
        ResponseCode.POLLING_TIMEOUT,
        ResponseCode.CONSUMER_NOT_ONLINE,
    }
)

Key = tuple[int, int, bool, str]  # request code, response code, whether it was held, how it went


class RequestTimes:
    """The counters; `now_s` is the steady clock's."""

    def __init__(self, now_s: Callable[[], float]) -> None:
        self._now_s = now_s
        self._table: dict[Key, Histogram] = {}

    def answered(self, request: Request, answer: int) -> int:
        """A request has its answer, or would have it if it were not one-way; returns how many ms it took."""
        command = request.command
        took_ms = int((self._now_s() - request.arrived_s) * 1000)
        result = FAILED if request.is_failed else ONEWAY if command.is_oneway else SUCCEEDED
        self.add(took_ms, known_code(command.code), answer, is_held=request.is_held, result=result)
        return took_ms

    def add(
        self, took_ms: int, code: int, answer: int, count: int = 1, *, is_held: bool = False, result: str = SUCCEEDED
    ) -> None:
        """This many requests of a known code took so long."""
        key = code, answer, is_held, result
        times = self._table.get(key)
        if times is None:
            if answer not in _KNOWN_ANSWERS:
                key = code, UNKNOWN_CODE, is_held, result
            times = self._table.setdefault(key, Histogram(MS_BOUNDS))
        times.add(took_ms, count)

    def families(self) -> Page:
        """As they stand on a page."""
        yield TIMES, ((_of_request(*key), times) for key, times in list(self._table.items()))
        yield REFUSED, self._refused()

    def _refused(self) -> Iterator[Sample]:
        counts: dict[tuple[int, int], int] = {}
        for (code, answer, _, _), times in list(self._table.items()):
            if answer not in _EXPECTED:
                counts[code, answer] = counts.get((code, answer), 0) + sum(times.counts)
        for (code, answer), count in counts.items():
            yield labels(request_code=code_name(code), response_code=answer_name(answer)), count


def known_code(code: int) -> int:
    return code if code in _KNOWN_CODES else UNKNOWN_CODE


def code_name(code: int) -> str:
    return "unknown" if code == UNKNOWN_CODE else RequestCode(code).name.lower()


def answer_name(answer: int) -> str:
    return "unknown" if answer == UNKNOWN_CODE else ResponseCode(answer).name.lower()


def _of_request(code: int, answer: int, is_held: bool, result: str) -> str:
    return labels(
        protocol_type="remoting",
        request_code=code_name(code),
        response_code=answer_name(answer),
        is_long_polling="true" if is_held else "false",
        result=result,
    )
