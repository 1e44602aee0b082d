"""Answers that say no, and whether the no is about us: who asks, or what that user may do.

RocketMQ's access control answers code 16 (ACL 2.0), or code 1 with `AclException` in the remark (ACL 1.0). Neither
belongs to it alone, so the words decide. The broker's words are kept as they are, for people search for them.

A client that is refused would go on in vain for ever: routes are told to anybody, heartbeats leave in the background,
and pulls are tried again. So a client asks one broker at its start, with a heartbeat, and fails with its answer.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Protocol

from bolide.errors import AccessRefused, ClientError, NoAnswer
from bolide.protocol.codes import ResponseCode

_ASKED_MAX = 3
# Compiled when a broker says no, and not at the start of every client.
_STRANGERS = (
    r"(?i)username cannot be null|No accessKey is configured|No acl config for|PlainAccessResource"
    r"|check signature failed|User:\S+ is (?:not found|disabled)"
)
_RIGHTS = r"has no permission to access|Authorization failed|AclException"
_ADVICE = (
    "the cluster checks who asks: `bolide login` keeps the key of a user, or set BOLIDE_ACCESS_KEY and "
    "BOLIDE_SECRET_KEY, or pass credentials="
)
_WRONG_SECRET = "(?i)check signature failed"
_ADVICE_WRONG = (
    "the secret is not that of this user: `bolide login` asks for it and keeps it, and an administrator gives another "
    "with `bolide user password NAME`"
)


class Answered(Protocol):
    """As much of an answer as a refusal needs."""

    @property
    def code(self) -> int: ...

    @property
    def remark(self) -> str | None: ...


def failure_of(answer: Answered, what: str = "", who: str = "broker") -> ClientError:
    """The error that an answer stands for; `what` was asked of it, for the sentence."""
    said = answer.remark or f"the {who} answered code {answer.code}"
    sentence = f"{what}: {said}" if what else said
    if answer.code in (ResponseCode.NO_PERMISSION, ResponseCode.SYSTEM_ERROR):
        if re.search(_STRANGERS, said):
            advice = _ADVICE_WRONG if re.search(_WRONG_SECRET, said) else _ADVICE
            return AccessRefused(f"{sentence}; {advice}", answer.code)
        if re.search(_RIGHTS, said):
            return AccessRefused(sentence, answer.code)
    return ClientError(sentence, answer.code)


async def check_access(masters: Callable[[], Awaitable[list[str]]], greet: Callable[[str], Awaitable[None]]) -> None:
    """Raise AccessRefused if the first broker that answers does not take who we are.

    Servers that cannot be reached are no reason to fail: they may come, and whatever is sent tells of them.
    """
    try:
        found = await masters()
    except AccessRefused:
        raise
    except ClientError:
        return
    for address in found[:_ASKED_MAX]:
        try:
            await greet(address)
        except NoAnswer:
            continue
        return
