"""Every request that is served is of one kind, and one that nobody thought of operates."""

from collections import Counter
from pathlib import Path

from bolide.broker.admin.refusals import REASONS, _refuse
from bolide.protocol import operations
from bolide.protocol.codes import RequestCode
from bolide.protocol.operations import KINDS, Kind, kind_of
from tests.broker.whole import whole
from tests.controller.nodes import running as controller_running
from tests.remoting.loops import both_loops


@both_loops
async def test_every_code_that_a_server_answers_has_a_row(tmp_path: Path) -> None:
    async with whole(tmp_path) as up:
        of_broker, of_namesrv = up.broker._handlers._handlers, up.ns.namesrv._handlers._handlers
    refused = {code for code in of_broker if code in REASONS and of_broker[code] is _refuse} - of_namesrv.keys()
    async with controller_running(tmp_path / "controller") as beside:
        of_controller = beside.controller._handlers._handlers
    served = of_broker.keys() | of_namesrv.keys() | of_controller.keys()
    refused -= of_controller.keys()
    missing = sorted(RequestCode(code).name for code in served - refused - KINDS.keys())
    assert not missing, "say in protocol/operations.py whether it is a client's call, looks, or operates"
    assert KINDS.keys() <= served - refused


def test_a_code_has_one_kind_and_one_without_a_row_operates() -> None:
    rows = [*operations._CLIENT, *operations._LOOK, *operations._OPERATE]
    assert [code for code, count in Counter(rows).items() if count > 1] == []
    assert kind_of(999_999) is Kind.OPERATE
    assert kind_of(RequestCode.AUTH_CREATE_USER) is Kind.OPERATE


def test_what_changes_or_destroys_for_everybody_operates_and_what_clients_need_does_not() -> None:
    destroying = ("DELETE", "CLEAN", "RESET", "WIPE", "REGISTER_BROKER", "PUT_KV", "UPDATE_AND", "UPDATE_BROKER")
    named = [code for code in KINDS if RequestCode(code).name.startswith(destroying)]
    assert len(named) > 12
    assert {kind_of(code) for code in named} == {Kind.OPERATE}
    assert kind_of(RequestCode.UPDATE_CONSUMER_OFFSET) is Kind.CLIENT
    assert kind_of(RequestCode.UNREGISTER_CLIENT) is Kind.CLIENT
