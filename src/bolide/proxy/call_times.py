"""How long gRPC calls took, by method and by gRPC's status: from the read that began a call to the write of its answer.

A connection notes each call as it ends, and all that a turn of the loop ended is counted when its answers are written:
one look at the clock for all of them. Telemetry is left out, for it lasts as long as its client. Paths come from
strangers: those that are no method are one.
"""

from collections import Counter
from collections.abc import Collection

from bolide.metrics.page import Family, Page, labels
from bolide.metrics.values import Histogram
from bolide.proxy.calls import Call, GrpcStatus
from bolide.remoting.request_times import MS_BOUNDS

CALLS = Family(
    "bolide_grpc_call_latency_milliseconds",
    "histogram",
    "From the arrival of a gRPC call to its answer; a receive waited for a message.",
    MS_BOUNDS,
)
_UNKNOWN = "unknown"


class CallTimes:
    """The counters of one port."""

    def __init__(self, paths: Collection[str]) -> None:
        self._paths = paths
        self._table: dict[tuple[str, int], Histogram] = {}
        self._ended: list[tuple[str, int, float]] = []  # not counted yet: path, status, when it began

    def end(self, call: Call, status: int) -> None:
        """A call is over; its answer may not be written yet."""
        if call.began_s is not None:
            self._ended.append((call.path, status, call.began_s))

    def count(self, now_s: float) -> None:
        """What has ended is written now."""
        if not self._ended:
            return
        for (path, status, began_s), count in Counter(self._ended).items():
            key = path if path in self._paths else _UNKNOWN, status
            times = self._table.get(key)
            if times is None:
                times = self._table[key] = Histogram(MS_BOUNDS)
            times.add(int((now_s - began_s) * 1000), count)
        self._ended.clear()

    def families(self) -> Page:
        """As they stand on a page."""
        yield CALLS, ((_of_call(*key), times) for key, times in list(self._table.items()))


def _of_call(path: str, status: int) -> str:
    method = path.rpartition("/")[2]
    return labels(protocol_type="grpc", method=method, grpc_status=GrpcStatus(status).name.lower())
