"""What went wrong when an argument is none that anybody could mean: a sentence that says what to give instead.

Looked for only after something failed, so that a right call pays nothing for it.
"""

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import update_wrapper
from typing import Any, ParamSpec, TypeVar

from bolide.client.sending.parts import Given
from bolide.errors import ClientError
from bolide.model.message import Message
from bolide.model.queue import MessageQueue
from bolide.protocol.codes import ResponseCode

P = ParamSpec("P")
T = TypeVar("T")
_SHOWN_MAX = 60
WRONG = (TypeError, AttributeError)  # what such an argument raises somewhere below


def mistake(parts: tuple[Any, ...], shard: object = None, queue: object = None) -> ClientError | None:
    """What is wrong with the arguments of a send, if it is one of their types."""
    topic, body, tags, keys, properties, flag, _ = parts
    problem = None
    if not isinstance(topic, str | Message):
        problem = f"the topic is {_shown(topic)}: give its name as text, or a Message"
    elif not isinstance(body, bytes):
        problem = f"the body is {_shown(body)}, and messages carry bytes: {_as_bytes(body)}"
    elif tags is not None and not isinstance(tags, str):
        problem = f"tags is {_shown(tags)}, and a message has one tag: give a text"
    elif not _are_texts(keys):
        problem = f"keys is {_shown(keys)}: give a text, or a list of texts"
    elif properties is not None and not isinstance(properties, Mapping):
        problem = f"properties is {_shown(properties)}: give a dict of texts"
    elif not isinstance(flag, int):
        problem = f"flag is {_shown(flag)}: give a whole number"
    elif shard is not None and not isinstance(shard, str):
        problem = f"shard is {_shown(shard)}: give a text, as str({shard!r:.20})"
    elif queue is not None and not isinstance(queue, MessageQueue):
        problem = f"queue is {_shown(queue)}: give a MessageQueue, as producer.queues(topic) lists them"
    return None if problem is None else ClientError(problem, ResponseCode.MESSAGE_ILLEGAL)


def _shown(given: object) -> str:
    text = repr(given)
    return f"a {type(given).__name__}, {text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + '...'}"


def _as_bytes(body: object) -> str:
    if isinstance(body, str):
        return "give body.encode()"
    return "give bytes(body)" if isinstance(body, bytearray | memoryview) else "give json=body, or bytes of your own"


def _are_texts(keys: object) -> bool:
    return isinstance(keys, str) or (isinstance(keys, Iterable) and all(isinstance(key, str) for key in keys))


def demand_count(name: str, given: object) -> None:
    """Raise for what is no number of things: with none to wait for, a caller would wait for ever."""
    if not isinstance(given, int) or given < 1:
        raise ClientError(f"{name} is {_shown(given)}: give a whole number from 1 on")


def nearest(name: str, known: Iterable[str]) -> str:
    """The known name that was probably meant, as the end of a sentence."""
    import difflib  # only a mistake pays for it

    near = difflib.get_close_matches(name, known, 1, 0.5)
    return f"; did you mean {near[0]}?" if near else ""


def naming_the_nearest(function: Callable[P, T]) -> Callable[P, T]:
    """For constructors: a keyword that they do not have is told the one that was probably meant."""
    known = [name for name in inspect.signature(function).parameters if name != "self"]

    def call(*given: P.args, **options: P.kwargs) -> T:
        if unknown := options.keys() - known:
            owner = function.__qualname__.removesuffix(".__init__")
            name = min(unknown)
            raise TypeError(f"{owner} has no option {name!r}{nearest(name, known)}")
        return function(*given, **options)

    return update_wrapper(call, function)


def explained(problem: BaseException, parts: Given, shard: Any, queue: Any, timeout_s: Any = None) -> BaseException:
    """The sentence in place of what was raised below; the same where the arguments are right."""
    if not isinstance(timeout_s, int | float | None):
        told = f"timeout_s is a {type(timeout_s).__name__}, {timeout_s!r}: give a number of seconds"
        return ClientError(told, ResponseCode.MESSAGE_ILLEGAL)
    return mistake(parts, shard, queue) or problem
