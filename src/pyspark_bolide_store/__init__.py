"""Where Spark finds `format("bolide-store")` by itself."""

from bolide.spark.store_source import StoreSource as DefaultSource

__all__ = ["DefaultSource"]
