"""What a broker that was killed learns of the copies of half messages: which are one transaction, and what was decided.

A kill is played by what it takes: the file of offsets, which is written every few seconds.
"""

from pathlib import Path

import pytest

from bolide.broker.transactions.copies import Copies
from bolide.broker.transactions.ended import Ended
from bolide.broker.transactions.halves import Trace
from bolide.protocol.command import Command
from bolide.protocol.headers.callbacks import CheckTransactionRequest
from bolide.protocol.headers.operating import ResumeCheckHalfMessageRequest
from bolide.protocol.properties import encode_properties
from bolide.testing import run
from tests.broker.transacting import COMMIT, GROUP, ROLLBACK, UNKNOWN, Producer, Sent, Transacting, transacting

RESTARTED_MS = 1_700_000_200_000


async def ask_thrice(rig: Transacting) -> list[CheckTransactionRequest]:
    """Three rounds, each answered with "I do not know"."""
    producer = rig.join(Producer())
    questions = []
    for _ in range(3):
        await rig.pass_time(30)
        await rig.transactions.checks.check()
        for question, _ in producer.questions():
            rig.answer(question, UNKNOWN)
            questions.append(question)
    return questions


async def asked_after(rig: Transacting, life: int = 1) -> list[CheckTransactionRequest]:
    """What the first round of a new life asks."""
    rig.clock.set_wall(RESTARTED_MS + 30_000 * life)
    producer = rig.join(Producer())
    await rig.transactions.checks.check()
    return [question for question, _ in producer.questions()]


def forget_offsets(root: Path) -> None:
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        (root / "config" / name).unlink(missing_ok=True)


def test_what_is_remembered_while_the_queue_is_read_are_copies_whose_original_has_not_come() -> None:
    copies = Copies(Ended())

    def take_in(offset: int, **own: str) -> None:
        properties = {"UNIQ_KEY": f"{offset % 10}", "PGROUP": GROUP, **own}
        copies.take_in(Trace(offset, 1, encode_properties(properties)))

    for offset in range(59, 29, -1):
        take_in(offset, TRANSACTION_CHECK_TIMES=str(offset // 10))
    assert len(copies.found) == 10
    for offset in range(9, -1, -1):
        take_in(offset)
    assert copies.found == {}


@pytest.mark.feature("F296", "F293")
@pytest.mark.parametrize("kills", [1, 4])
def test_after_a_kill_only_the_newest_copy_is_asked_about_and_any_answer_ends_it_once(
    tmp_path: Path, kills: int
) -> None:
    old: list[CheckTransactionRequest] = []

    async def first() -> None:
        async with transacting(tmp_path) as rig:
            await rig.prepare()
            old.extend(await ask_thrice(rig))
            assert len(rig.halves) == 4

    async def next_life(number: int) -> None:
        async with transacting(tmp_path) as rig:
            (question,) = await asked_after(rig, number)
            assert question.half_queue_offset == 3 + number
            assert len(rig.halves) == 4 + number
            old.append(question)
            if number == kills:
                for each in old:
                    rig.answer(each, COMMIT)
                assert len(rig.messages()) == 1

    run(first())
    for number in range(1, kills + 1):
        forget_offsets(tmp_path)
        run(next_life(number))


@pytest.mark.parametrize("noted", range(4))
def test_what_the_op_queue_says_of_any_copy_holds_for_all(tmp_path: Path, noted: int) -> None:
    places: list[Sent] = []

    async def first() -> None:
        async with transacting(tmp_path) as rig:
            places.append(await rig.prepare())
            places.extend(
                Sent(each.half_queue_offset, each.physical_offset, each.message_id or "")
                for each in await ask_thrice(rig)
            )
            rig.transactions.operations.add([noted])

    async def second() -> None:
        async with transacting(tmp_path) as rig:
            assert await asked_after(rig) == []
            for place in places:
                rig.end(place, COMMIT, oneway=True)
            rig.transactions.outcomes.finish()
            assert rig.messages() == []
            assert len(rig.halves) == 4

    run(first())
    forget_offsets(tmp_path)
    run(second())


@pytest.mark.parametrize("how", [COMMIT, ROLLBACK])
def test_an_end_that_names_a_copy_settled_in_an_earlier_life_ends_the_newest(tmp_path: Path, how: int) -> None:
    old: list[CheckTransactionRequest] = []

    async def first() -> None:
        async with transacting(tmp_path) as rig:
            await rig.prepare()
            old.extend(await ask_thrice(rig))

    async def second() -> None:
        async with transacting(tmp_path) as rig:
            assert rig.transactions.ended.base == 3
            for each in old:
                rig.answer(each, how)
            assert await asked_after(rig) == []
            assert len(rig.messages()) == (how == COMMIT)

    run(first())
    run(second())


def test_a_message_that_was_passed_on_with_its_id_is_a_transaction_of_its_own(tmp_path: Path) -> None:
    async def first() -> None:
        async with transacting(tmp_path) as rig:
            for _ in range(2):
                await rig.prepare(UNIQ_KEY="7F00000100FF")
                await rig.pass_time(1)
            await ask_thrice(rig)

    async def second() -> None:
        async with transacting(tmp_path) as rig:
            questions = await asked_after(rig)
            assert [each.half_queue_offset for each in questions] == [8, 9]
            for question in questions:
                rig.answer(question, COMMIT)
            assert len(rig.messages()) == 2

    run(first())
    forget_offsets(tmp_path)
    run(second())


def test_offsets_that_no_half_message_has_cost_no_memory_and_hold_up_nothing(tmp_path: Path) -> None:
    async def first() -> None:
        async with transacting(tmp_path) as rig:
            await rig.prepare()
            rig.transactions.operations.add([10**15, 0, 7])

    async def second() -> None:
        async with transacting(tmp_path) as rig:
            assert rig.transactions.ended.next_undecided(0) == 1
            assert await asked_after(rig) == []
            assert rig.offsets.get("CID_RMQ_SYS_TRANS", "RMQ_SYS_TRANS_OP_HALF_TOPIC", 0) == 1

    run(first())
    forget_offsets(tmp_path)
    run(second())


def test_one_taken_up_again_is_asked_about_whatever_became_of_its_earlier_copies(tmp_path: Path) -> None:
    async def first() -> None:
        async with transacting(tmp_path) as rig:
            await rig.prepare(b"waits", group="away")
            await rig.prepare(b"given up", TRANSACTION_CHECK_TIMES="15", TRAN_PREPARED_QUEUE_OFFSET="1")
            await rig.pass_time(30)
            await rig.transactions.checks.check()
            (given_up,) = rig.given_up
            rig.ask(Command(323, fields=ResumeCheckHalfMessageRequest(message_id=given_up.offset_id).encode()))

    async def second() -> None:
        async with transacting(tmp_path) as rig:
            (question,) = await asked_after(rig)
            rig.answer(question, COMMIT)
            assert [each.body for each in rig.messages()] == [b"given up"]
            assert len(rig.given_up) == 1  # not once more, though a group that is away keeps it from being settled

    run(first())
    run(second())
