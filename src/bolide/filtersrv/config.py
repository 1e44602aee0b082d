"""The filter server's settings, under RocketMQ 4.2's names where it had one.

Nobody may upload a filter until `accessKey` and `secretKey` are set: a filter is code, and who may have code run here
must prove who he is. How long a filter may take and how much memory it may have are bounds and no wishes.
"""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field

from bolide.errors import ConfigError
from bolide.metrics.config import MetricsConfig
from bolide.remoting import config as remoting
from bolide.remoting.address import split_address
from bolide.remoting.config import ConnectConfig, with_tls_file
from bolide.remoting.listen_config import ListenConfig
from bolide.settings import Range, build, check_bounds, check_keys, conf, dump, keys_of

SECRET = "secretKey"
# RocketMQ's keys that steer nothing here: sources are uploaded and never fetched, records pass as they were stored.
WITHOUT_EFFECT = {
    "rocketmqHome": "",
    "namesrvAddr": "",
    "filterClassRepertoryUrl": "http://fsrep.tbsite.net/filterclass",
    "compressMsgBodyOverHowmuch": "8192",
    "zipCompressLevel": "5",
    "fsServerAsyncSemaphoreValue": "2048",
    "fsServerCallbackExecutorThreads": "64",
    "fsServerWorkerThreads": "64",
    **remoting.WITHOUT_EFFECT,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class FilterServerConfig:
    """How the filter server behaves. `ignored` holds given keys without effect."""

    broker: str = conf("connectWhichBroker", "127.0.0.1:10911")
    advertised_host: str = conf("filterServerIP", "")
    takes_uploads: bool = conf("clientUploadFilterClassEnable", True)
    access_key: str = conf("accessKey", "")
    secret_key: str = conf(SECRET, "")
    # our own: for one batch of messages, for one filter, for all
    time_max_ms: int = conf("bolideFilterTimeMax", 1_000, Range(10, 600_000))
    memory_max_mb: int = conf("bolideFilterMemoryMax", 256, Range(128, 1 << 20))
    filter_count_max: int = conf("bolideFilterCountMax", 64, Range(1, 65_536))
    listen: ListenConfig = field(default_factory=lambda: ListenConfig(port=0))
    connect: ConnectConfig = field(default_factory=ConnectConfig)
    metrics: MetricsConfig = field(default_factory=MetricsConfig)
    ignored: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_bounds(self)
        split_address(self.broker)
        if bool(self.access_key) != bool(self.secret_key):
            raise ConfigError("accessKey", self.access_key, "needs secretKey beside it, and the other way round")


_ROOMS = (FilterServerConfig, ListenConfig, ConnectConfig, MetricsConfig)
USED_KEYS = frozenset(key for room in _ROOMS for key in keys_of(room))


def read_config(properties: Mapping[str, str]) -> FilterServerConfig:
    """The whole configuration from its texts; raises ConfigError for a key or a value that cannot be honoured."""
    properties = with_tls_file(properties)
    ignored = check_keys(properties, USED_KEYS, WITHOUT_EFFECT)
    return dataclasses.replace(
        build(FilterServerConfig, properties),
        listen=build(ListenConfig, {"listenPort": "0", **properties}),
        connect=build(ConnectConfig, properties),
        metrics=build(MetricsConfig, properties),
        ignored={key: properties[key] for key in ignored},
    )


def shown(config: FilterServerConfig) -> dict[str, str]:
    """Every key with its text but for the secret."""
    texts = {
        key: text
        for room in (config.metrics, config.connect, config.listen, config)
        for key, text in dump(room).items()
    }
    return {key: text for key, text in {**config.ignored, **texts}.items() if key != SECRET}
