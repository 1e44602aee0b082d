"""Both record kernels, as parameters of one test body."""

import os

import pytest

from bolide.kernel import plain_records

try:
    from bolide.kernel import compiled_records
except ImportError:
    if os.environ.get("BOLIDE_KERNEL") == "compiled":
        raise
    compiled_records = None

available = [plain_records] if compiled_records is None else [plain_records, compiled_records]
kernels = pytest.mark.parametrize("kernel", available, ids=lambda kernel: kernel.__name__.rpartition(".")[2])
