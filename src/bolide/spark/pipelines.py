"""For Spark's declarative pipelines: import it in a pipeline's definitions, and sources in Python work to the end.

In Spark 4.3 `spark-pipelines run` with any source or sink in Python fails after all its work is done, and exits with 1:
the metrics of Python workers arrive as a response that the command line does not know (UNKNOWN_RESPONSE,
`__python_accumulator__`). Importing this module has such responses passed over. It does nothing without Spark Connect.
"""

from collections.abc import Iterator
from contextlib import suppress
from typing import Any


def _known_responses(self: Any, command: Any, observations: Any = None) -> Iterator[dict[str, Any]]:
    request = self._execute_plan_request_with_metadata()
    self._set_command_in_plan(request.plan, command)
    for response in self._execute_and_fetch_as_iterator(request, observations or {}):
        if isinstance(response, dict):
            yield response


with suppress(ImportError):  # only who runs pipelines has Spark Connect's packages
    from pyspark.sql.connect.client.core import SparkConnectClient

    SparkConnectClient.execute_command_as_iterator = _known_responses  # type: ignore[method-assign]
