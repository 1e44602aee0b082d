"""Namespaces of the first kind: a prefix that clients put before topics and groups, and take off again.

`orders` becomes `ns%orders`, and `%RETRY%group` becomes `%RETRY%ns%group`. Servers see only longer names. What RocketMQ
keeps for itself has no namespace.
"""

from bolide.model.topics import DEAD_LETTER_PREFIX, RETRY_PREFIX, SYSTEM_GROUP_PREFIX, is_system_topic

SEPARATOR = "%"


def with_namespace(namespace: str, name: str) -> str:
    """The topic or group inside the namespace; unchanged when it is there already, or there is no namespace."""
    prefix, plain = _split_prefix(name)
    is_reserved = is_system_topic(name) or name.startswith(SYSTEM_GROUP_PREFIX)
    if not namespace or not name or is_reserved or plain.startswith(namespace + SEPARATOR):
        return name
    return prefix + namespace + SEPARATOR + plain


def without_namespace(namespace: str, name: str) -> str:
    """The topic or group as the user knows it; unchanged when it is of another namespace."""
    prefix, plain = _split_prefix(name)
    if not namespace or not plain.startswith(namespace + SEPARATOR):
        return name
    return prefix + plain.removeprefix(namespace + SEPARATOR)


def _split_prefix(name: str) -> tuple[str, str]:
    for prefix in (RETRY_PREFIX, DEAD_LETTER_PREFIX):
        if name.startswith(prefix):
            return prefix, name.removeprefix(prefix)
    return "", name
