"""docs/compat.md against servers that run: the page says of every request what really happens."""

import asyncio
import re
from pathlib import Path

import pytest

from bolide.broker.broker import serve as serve_broker
from bolide.broker.config import read_config as broker_config
from bolide.clock import SystemClock
from bolide.namesrv.config import read_config as namesrv_config
from bolide.namesrv.server import serve as serve_namesrv
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from tests.remoting.ends import Peer

PAGE = Path(__file__).parents[1] / "docs" / "compat.md"
ANSWER_LIMIT_S = 30
NOT_SUPPORTED = ResponseCode.REQUEST_CODE_NOT_SUPPORTED
SMALL = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "6000", "maxHashSlotNum": "64"}
SMALL |= {"maxIndexNum": "256"}


def page() -> dict[RequestCode, str]:
    """What the page says of each request."""
    rows = re.findall(r"^\| (\d+) \| \w+ \| .* \| (.*?) \|$", PAGE.read_text("utf-8"), re.MULTILINE)
    return {RequestCode(int(code)): today for code, today in rows}


async def ask_everything(port: int) -> dict[RequestCode, Command]:
    """Every request, empty, each on a connection of its own: what it breaks is not the next one's."""
    answers = {}
    for code in RequestCode:
        peer = await Peer.connect(port)
        async with asyncio.timeout(ANSWER_LIMIT_S):
            answers[code] = await peer.ask(Command(code, opaque=1))
        peer.leave()
    return answers


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[RequestCode, Command]]:
    root = tmp_path_factory.mktemp("compat")
    clock = SystemClock()
    here = {"bindAddress": "127.0.0.1", "listenPort": "0"}

    async def main() -> dict[str, dict[RequestCode, Command]]:
        namesrv = namesrv_config({"kvConfigPath": str(root / "kv.json"), **here})
        broker = broker_config({"storePathRootDir": str(root / "store"), **here, **SMALL})
        async with serve_namesrv(namesrv, clock) as (_, at_namesrv), serve_broker(broker, clock) as (_, at_broker):
            return {
                "name server": await ask_everything(at_namesrv.port),
                "broker": await ask_everything(at_broker.port),
            }

    return asyncio.run(main())


def answered(answers: dict[RequestCode, Command]) -> set[RequestCode]:
    return {code for code, answer in answers.items() if answer.code != NOT_SUPPORTED}


@pytest.mark.feature("F124")
@pytest.mark.parametrize("server", ["name server", "broker"])
def test_a_server_answers_what_the_page_says_it_does_and_nothing_else(
    answers: dict[str, dict[RequestCode, Command]], server: str
) -> None:
    claimed = {code for code, today in page().items() if today == server}
    assert answered(answers[server]) == claimed


def test_a_refusal_has_the_reason_that_the_page_gives(answers: dict[str, dict[RequestCode, Command]]) -> None:
    for code, today in page().items():
        if today.startswith("refused: "):
            remark = answers["broker"][code].remark or ""
            assert remark.endswith(today.removeprefix("refused: ")), (code, remark)
            assert str(int(code)) in remark


def test_a_broker_says_where_to_ask_what_a_name_server_answers(
    answers: dict[str, dict[RequestCode, Command]],
) -> None:
    for code in (code for code, today in page().items() if today == "name server"):
        assert "a name server answers this" in (answers["broker"][code].remark or "")


def test_the_page_knows_four_answers() -> None:
    assert {today.partition(":")[0] for today in page().values()} == {"broker", "name server", "sent", "refused"}
