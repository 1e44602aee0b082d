"""What a broker's answer means to a client of gRPC."""

import pytest

from bolide.errors import BolideError, ClientError, NoAnswer
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.proxy import messages as m
from bolide.proxy.statuses import denial_of

C = m.Code
BY_BROKER = {
    ResponseCode.SYSTEM_BUSY: C.TOO_MANY_REQUESTS,
    ResponseCode.POLLING_FULL: C.TOO_MANY_REQUESTS,
    ResponseCode.REQUEST_CODE_NOT_SUPPORTED: C.NOT_IMPLEMENTED,
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: C.CONSUMER_GROUP_NOT_FOUND,
    ResponseCode.FLUSH_DISK_TIMEOUT: C.MASTER_PERSISTENCE_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: C.SLAVE_PERSISTENCE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: C.HA_NOT_AVAILABLE,
    ResponseCode.NO_PERMISSION: C.FORBIDDEN,
    ResponseCode.SYSTEM_ERROR: C.INTERNAL_SERVER_ERROR,
    ResponseCode.NO_MESSAGE: C.INTERNAL_SERVER_ERROR,
}


@pytest.mark.parametrize("code", BY_BROKER)
def test_a_brokers_code_has_one_of_the_protocol_and_keeps_its_words(code: ResponseCode) -> None:
    denial = denial_of(Command(RequestCode.POP_MESSAGE).answer(code, remark="why"))
    assert denial is not None
    assert (denial.code, denial.text) == (BY_BROKER[code], "why")


@pytest.mark.parametrize(
    "code", [ResponseCode.NO_MESSAGE, ResponseCode.MESSAGE_ILLEGAL, ResponseCode.INVALID_PARAMETER]
)
def test_a_handle_that_is_merely_old_is_told_as_such_so_that_nobody_repeats_it_without_end(code: ResponseCode) -> None:
    denial = denial_of(Command(RequestCode.ACK_MESSAGE).answer(code, remark="gone"), is_about_handle=True)
    assert denial is not None
    assert denial.code == C.INVALID_RECEIPT_HANDLE


@pytest.mark.parametrize(
    ("problem", "is_about_handle", "code"),
    [
        (NoAnswer("in 3 s"), False, C.PROXY_TIMEOUT),
        (NoAnswer("in 3 s"), True, C.PROXY_TIMEOUT),
        (ClientError("no such broker"), False, C.BAD_REQUEST),
        (ClientError("no such broker"), True, C.INVALID_RECEIPT_HANDLE),
    ],
)
def test_a_broker_that_does_not_answer_or_is_not_known(
    problem: BolideError, is_about_handle: bool, code: m.Code
) -> None:
    denial = denial_of(problem, is_about_handle=is_about_handle)
    assert denial is not None
    assert denial.code == code


def test_a_success_is_no_denial() -> None:
    assert denial_of(Command(RequestCode.ACK_MESSAGE).answer(ResponseCode.SUCCESS)) is None
