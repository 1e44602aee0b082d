"""Spark finds `format("bolide-store")` by this name, and imports it in every worker: light, and it never fails."""

from contextlib import suppress

with suppress(ImportError):  # without the extra there is no Spark to ask; and one module that fails hides all others
    from bolide.spark.store.source import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
