"""`/transactions`: what nobody decided, who could be asked, and what brokers gave up."""

from dataclasses import dataclass

from bolide.admin.rows import transaction_cells
from bolide.admin.transactions import OpenTransaction
from bolide.dashboard.page import Action, Answer, Form, Page, Visit

SHOWN_MAX = 200


@dataclass(frozen=True, slots=True)
class TransactionLine:
    """One half message."""

    each: OpenTransaction
    has_producer: bool


@dataclass(frozen=True, slots=True)
class TransactionsView:
    """Open ones and those given up."""

    open: list[TransactionLine]
    given_up: list[TransactionLine]
    shown_max: int


async def load(visit: Visit) -> Answer:
    there = set(await visit.admin.producers())
    lists: list[list[TransactionLine]] = []
    async with visit.dashboard.searches:
        for walk in (visit.admin.open_transactions(), visit.admin.given_up_transactions()):
            lines: list[TransactionLine] = []
            async for each in walk:
                lines.append(TransactionLine(each, each.group in there))
                if len(lines) >= SHOWN_MAX:
                    break
            lists.append(lines)
    rows = {
        name: [transaction_cells(line.each, visit.now_ms) for line in lines]
        for name, lines in zip(("open", "given_up"), lists, strict=True)
    }
    return Answer("transactions.html", TransactionsView(lists[0], lists[1], SHOWN_MAX), rows)


async def resume(visit: Visit, form: Form) -> str:
    offset_id = form.text("id")
    await visit.admin.resume_transaction(offset_id)
    visit.note("resume transaction", offset_id)
    return "/transactions"


PAGES = [Page("/transactions", "Transactions", load)]
ACTIONS = [Action("/transactions/resume", resume)]
