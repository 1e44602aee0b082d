"""Settings that ask for what this broker cannot do, where to ignore them would cost somebody messages or safety.

A pool that is not here may be ignored; a replica that is not here, an access check that is not made or a log in another
place may not. Such a value stops the start with a sentence.
"""

from collections.abc import Mapping

from bolide.errors import ConfigError

_OFF = frozenset({"false"})
_NOTHING = frozenset({""})

# Key, the values that ask for nothing, and why the others cannot be had.
_BEYOND: tuple[tuple[str, frozenset[str], str], ...] = (
    ("duplicationEnable", _OFF, "the log is not fed from another broker here"),
    ("messageStorePlugIn", _NOTHING, "plug-ins of the store are Java classes, which are not loaded here"),
    ("readOnlyCommitLogStorePaths", _NOTHING, "the log has one directory here: messages elsewhere would be missing"),
    ("enableMultiDispatch", _OFF, "light message queues (LMQ) are not kept here"),
    ("configManagerVersion", frozenset({"v1"}), "topics, groups and offsets in RocksDB cannot be read here"),
    ("useSingleRocksDBForAllConfigs", _OFF, "topics, groups and offsets in RocksDB cannot be read here"),
    ("isBrokerContainer", _OFF, "a container of several brokers is not here: start a process for each"),
)
_FINDS_NAME_SERVERS = ("fetchNamesrvAddrByAddressServer", "fetchNameSrvAddrByDnsLookup")


def refuse_beyond(properties: Mapping[str, str]) -> None:
    """Raises ConfigError for the first setting that cannot be ignored."""
    for key, fine, why in _BEYOND:
        value = properties.get(key)
        if value is not None and value.strip().lower() not in fine:
            raise ConfigError(key, value, why)
    for key in _FINDS_NAME_SERVERS:
        if properties.get(key, "").strip().lower() == "true" and not properties.get("namesrvAddr", "").strip():
            raise ConfigError(key, properties[key], "name servers are not looked up here: list them in namesrvAddr")
