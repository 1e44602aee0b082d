"""Data work on Spark: topics and store files as DataFrames, and the jobs of `bolide lake`.

Spark plans, distributes, retries and checkpoints; nothing here is an engine. The room needs the extra
(`pip install 'bolide[spark]'`) and is imported by nobody who serves messages.
"""

from bolide.spark.session import session

__all__ = ["session"]
