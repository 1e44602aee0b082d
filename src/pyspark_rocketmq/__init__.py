"""Spark finds `format("rocketmq")`, another word for `bolide`, by this name."""

from contextlib import suppress

with suppress(ImportError):  # without the extra there is no Spark to ask; and one module that fails hides all others
    from bolide.spark.source.source import RocketmqSource as DefaultSource

__all__ = ["DefaultSource"]
