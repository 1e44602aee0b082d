"""Spark finds `format("bolide")` by this name; it imports it in every worker, so it must be light and never fail."""

from contextlib import suppress

with suppress(ImportError):  # without the extra there is no Spark to ask; and one module that fails hides all others
    from bolide.spark.source.source import BolideSource as DefaultSource

__all__ = ["DefaultSource"]
