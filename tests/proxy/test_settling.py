"""What becomes of messages that are out, where it is not as usual."""

from pathlib import Path

import pytest

from bolide.proxy import messages as m
from bolide.testing.loop import VirtualClock
from tests.proxy.peer import Peer, connected
from tests.proxy.serving import ack, message, receive, resource, send, serving
from tests.remoting.loops import virtual_time

C = m.Code


async def change(peer: Peer, handle: str, seconds: int, *, suspend: bool = False) -> m.ChangeInvisibleDurationResponse:
    request = m.ChangeInvisibleDurationRequest(
        group=resource("G"),
        topic=resource("Normal"),
        receipt_handle=handle,
        invisible_duration={"seconds": seconds},
        suspend=suspend,
    )
    return await peer.call("ChangeInvisibleDuration", request, m.ChangeInvisibleDurationResponse)


@virtual_time
async def test_entries_that_went_differently_say_so_each_and_together(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        await send(peer, message("Normal"))
        (good,) = (await receive(peer, "Normal", "G")).messages
        bad = message("Normal", receipt_handle="nonsense")
        answer = await ack(peer, "Normal", "G", good, bad)
        assert answer.status.code == C.MULTIPLE_RESULTS
        assert [entry.status.code for entry in answer.entries] == [C.OK, C.INVALID_RECEIPT_HANDLE]
        assert [entry.receipt_handle for entry in answer.entries][1] == "nonsense"


@virtual_time
async def test_a_message_is_not_hidden_for_less_than_nothing_or_more_than_half_a_day(tmp_path: Path) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        await send(peer, message("Normal"))
        (got,) = (await receive(peer, "Normal", "G")).messages
        handle = got.system_properties.receipt_handle
        for seconds in (-1, 12 * 3600 + 1):
            assert (await change(peer, handle, seconds)).status.code == C.ILLEGAL_INVISIBLE_TIME
        changed = await change(peer, handle, 12 * 3600)
        assert changed.status.code == C.OK
        refused = await change(peer, handle, 60)
        assert refused.status.code == C.INVALID_RECEIPT_HANDLE
        assert refused.receipt_handle == handle


@pytest.mark.parametrize(("suspend", "attempt"), [(False, 2), (True, 1)])
@virtual_time
async def test_a_message_that_is_given_back_counts_unless_its_client_was_suspended(
    tmp_path: Path, suspend: bool, attempt: int
) -> None:
    async with serving(tmp_path, VirtualClock()) as served, connected(served.port) as peer:
        await send(peer, message("Normal"))
        (got,) = (await receive(peer, "Normal", "G")).messages
        assert (await change(peer, got.system_properties.receipt_handle, 1, suspend=suspend)).status.code == C.OK
        (again,) = (await receive(peer, "Normal", "G", long_polling_timeout={"seconds": 20})).messages
        assert again.system_properties.delivery_attempt == attempt
