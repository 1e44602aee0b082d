"""What Bolide raised on purpose inside of Spark, as the sentence that it was.

An error of a task reaches the driver as text within Spark's own exception, and which one that is depends on how it
failed: a task gives PySpark's PythonException, two stages that fail at once a bare error of the JVM, a Spark Connect
server one of its own. The sentence is in the traceback of all of them.
"""

import re
from collections.abc import Iterator
from contextlib import contextmanager

from bolide import errors
from bolide.errors import BolideError, ClientError, StoreError

_OWN_ERROR = re.compile(r"^.*?\bbolide\.errors\.(\w+): (.+)$", re.MULTILINE)


@contextmanager
def plain_tasks() -> Iterator[None]:
    """An error of ours that a task raised is raised here; any other stays Spark's."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as problem:
        own = own_error(str(problem))
        if own is None:
            raise
        raise own from problem


def own_error(text: str) -> BolideError | None:
    """The last error of ours that a traceback names: tracebacks end with what came out of them."""
    found = _OWN_ERROR.findall(text)
    if not found:
        return None
    name, sentence = found[-1]
    kind = getattr(errors, name, None)
    # The other kinds are made of more than a sentence.
    return kind(sentence) if isinstance(kind, type) and issubclass(kind, StoreError) else ClientError(sentence)
