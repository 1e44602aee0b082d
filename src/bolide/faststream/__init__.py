"""FastStream on Bolide: handlers are members of consumer groups, and what one raises has its message come again.

broker = BolideBroker("127.0.0.1:9876")
"""

from typing import Annotated

from faststream import Context

from bolide.faststream.broker import BolideBroker, BolideRouter
from bolide.faststream.messages import BolideMessage as BolideStreamMessage
from bolide.faststream.messages import BolideResponse
from bolide.faststream.testing import TestBolideBroker

# FastStream gives a handler what its context has under this name.
BolideMessage = Annotated[BolideStreamMessage, Context("message")]

__all__ = ["BolideBroker", "BolideMessage", "BolideResponse", "BolideRouter", "BolideStreamMessage", "TestBolideBroker"]
