"""Requests by what was asked and answered: which of them failed, which were refused, and which had nothing to say."""

from typing import Any

import pytest

from bolide.metrics.page import pieces
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.remoting.owner import Request
from bolide.remoting.request_times import RequestTimes
from tests.broker.metering import Scraped

COUNT, REFUSED = "rocketmq_rpc_latency_milliseconds_count", "bolide_refused_requests_total"
NOBODY: Any = None


def page_of(times: RequestTimes) -> Scraped:
    return Scraped("".join(pieces(times.families(), {"node_id": "a"}, 100)))


def pull(*, is_failed: bool = False, flag: int = 0) -> Request:
    return Request(Command(RequestCode.PULL_MESSAGE, flag=flag), NOBODY, 0.0, is_failed=is_failed)


def test_what_failed_by_our_mistake_is_told_from_what_was_refused_and_from_what_has_no_answer() -> None:
    times = RequestTimes(lambda: 0.0)
    for request in (pull(), pull(flag=2), pull(is_failed=True), pull(is_failed=True, flag=2)):
        times.answered(request, ResponseCode.SYSTEM_ERROR)
    results = {result: page_of(times).value(COUNT, result=result) for result in ("success", "oneway")}
    assert results == {"success": 1, "oneway": 1}
    assert page_of(times).value(COUNT, result="process_request_failed") == 2
    assert page_of(times).value(REFUSED, request_code="pull_message", response_code="system_error") == 4


@pytest.mark.parametrize(
    "answer",
    [
        ResponseCode.SUCCESS,
        ResponseCode.PULL_NOT_FOUND,
        ResponseCode.PULL_RETRY_IMMEDIATELY,
        ResponseCode.PULL_OFFSET_MOVED,
        ResponseCode.QUERY_NOT_FOUND,
        ResponseCode.NO_MESSAGE,
        ResponseCode.POLLING_TIMEOUT,
        ResponseCode.CONSUMER_NOT_ONLINE,
    ],
)
def test_an_answer_that_there_is_nothing_yet_is_counted_and_no_refusal(answer: ResponseCode) -> None:
    times = RequestTimes(lambda: 0.0)
    times.answered(pull(), answer)
    page = page_of(times)
    assert page.value(COUNT, response_code=answer.name.lower()) == 1
    assert page.value(REFUSED) is None


def test_codes_that_nobody_knows_are_one_series_whatever_was_asked_and_answered() -> None:
    times = RequestTimes(lambda: 0.0)
    for code in (47_110, 47_111):
        times.answered(Request(Command(code), NOBODY, 0.0), code)
    page = page_of(times)
    unknown = {"request_code": "unknown", "response_code": "unknown"}
    assert page.value(COUNT, **unknown) == page.value(COUNT) == 2
    assert page.value(REFUSED, **unknown) == page.value(REFUSED) == 2
