"""Taskiq on Bolide: tasks are popped messages, and those with a delay wait at the broker.

broker = BolideBroker("127.0.0.1:9876").with_result_backend(...)
"""

from bolide.taskiq.broker import BolideBroker

__all__ = ["BolideBroker"]
