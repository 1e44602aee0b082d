"""Makes `bolide://` known to kombu.

Kombu finds the transport of a URL in a table and has no entry point for more of them. It has one for serializers, which
it loads when it is imported itself: so `pip install 'bolide[celery]'` is enough, and no program need import this. What
kombu gets by that entry point is a serializer as it should be, `msgspec`: JSON, written and read by msgspec.
"""

import msgspec
from kombu.transport import TRANSPORT_ALIASES

TRANSPORT_ALIASES.setdefault("bolide", "bolide.celery.transport:Transport")


def _encode(value: object) -> bytes:
    return msgspec.json.encode(value)


# Encode, decode, content type, content encoding.
SERIALIZER = (_encode, msgspec.json.decode, "application/x-msgspec-json", "utf-8")
