"""The keys of replication."""

import pytest

from bolide.errors import ConfigError
from bolide.ha.config import BODY_SIZE_MAX, HaConfig
from bolide.settings import build


def test_the_defaults_are_rocketmqs_but_for_the_size_of_a_frame() -> None:
    config = HaConfig()
    assert (config.heartbeat_interval_ms, config.silence_max_ms, config.reconnect_pause_ms) == (5_000, 20_000, 5_000)
    assert (config.gap_size_max, config.behind_size_max, config.caught_up_max_ms) == (1 << 28, 1 << 28, 15_000)
    assert (config.is_rate_limited, config.bytes_per_s_max) == (False, 104_857_600)
    assert (config.is_learner, config.begins_at_last_file) == (False, False)
    assert 32_768 < config.frame_size_max <= BODY_SIZE_MAX == 4_194_268


def test_a_java_configuration_is_understood() -> None:
    config = build(
        HaConfig,
        {"haListenPort": "10915", "haTransferBatchSize": "65536", "asyncLearner": "true", "haMaxGapNotInSync": "0"},
    )
    assert (config.port, config.frame_size_max, config.is_learner, config.gap_size_max) == (10915, 65536, True, 0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("haMaxGapNotInSync", "2147483648"),  # Java reads 32 bits, and keeps its default without a word
        ("haSlaveFallbehindMax", "2147483648"),
        ("haTransferBatchSize", "4194304"),  # with its head it would never be complete at an Apache slave
        ("haTransferBatchSize", "0"),
        ("haListenPort", "65536"),
        ("haSendHeartbeatInterval", "0"),
    ],
)
def test_a_setting_that_cannot_be_honoured_is_refused_when_it_is_read(key: str, value: str) -> None:
    with pytest.raises(ConfigError, match=key):
        build(HaConfig, {key: value})
