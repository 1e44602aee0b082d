"""Both record kernels, as parameters of one test body."""

import importlib
import os
from typing import Any

import pytest

from bolide.kernel import plain_records

compiled_records: Any
try:
    compiled_records = importlib.import_module("bolide.kernel.compiled_records")
except ImportError:
    if os.environ.get("BOLIDE_KERNEL") == "compiled":
        raise
    compiled_records = None

available = [plain_records] if compiled_records is None else [plain_records, compiled_records]
kernels = pytest.mark.parametrize("kernel", available, ids=lambda kernel: kernel.__name__.rpartition(".")[2])
