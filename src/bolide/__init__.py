"""Bolide: a message broker, a name server, a client and a Spark pipeline that speak Apache RocketMQ's protocol."""

from bolide.errors import BolideError

__all__ = ["BolideError", "__version__"]
__version__ = "0.1.0"
