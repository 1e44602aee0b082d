"""The bits of a message's sysFlag.

The broker alone sets the two address bits, from the addresses it stores: they decide how long the record is. Requests
that pull have a sysFlag too; its bits are others.
"""

COMPRESSED = 0x1
MULTI_TAGS = 0x2
PREPARED = 0x4
COMMITTED = 0x8
ROLLED_BACK = 0xC
BORN_HOST_IPV6 = 0x10
STORE_HOST_IPV6 = 0x20
NEEDS_UNWRAP = 0x40
INNER_BATCH = 0x80

TRANSACTION_MASK = 0xC
HOSTS_MASK = BORN_HOST_IPV6 | STORE_HOST_IPV6
UNWRAP_MASK = NEEDS_UNWRAP | INNER_BATCH
COMPRESSION_MASK = 0x700
COMPRESSION_SHIFT = 8


def transaction_of(sys_flag: int) -> int:
    """0, PREPARED, COMMITTED or ROLLED_BACK."""
    return sys_flag & TRANSACTION_MASK


def with_transaction(sys_flag: int, transaction: int) -> int:
    return sys_flag & ~TRANSACTION_MASK | transaction
