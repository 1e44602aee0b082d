"""Every setting that a Java broker shows is known to ours: used, or named without effect with Java's default."""

from pathlib import Path

import pytest

from bolide.broker.config import RULES, USED_KEYS, read_config
from bolide.broker.settings.ignored import WITHOUT_EFFECT
from bolide.settings import read_properties
from interop.cluster import java_broker, java_name_server
from interop.release import SERVER_RELEASES
from interop.wire import call

GET_BROKER_CONFIG = 26
# These follow the machine (its number of cores) or the scenario (ports, directories, small files).
OWN_DEFAULTS = {"rocketmqHome", "haListenPort", "clientCallbackExecutorThreads", "sendMessageThreadPoolNums"}
OWN_DEFAULTS |= {"putMessageFutureThreadPoolNums", "endTransactionThreadPoolNums"}
OLD_SPELLINGS = {"mapedFileSizeCommitLog"}


@pytest.mark.parametrize("release", SERVER_RELEASES)
def test_a_java_brokers_own_settings_start_ours(tmp_path: Path, release: str) -> None:
    with (
        java_name_server(tmp_path, release) as namesrv,
        java_broker(tmp_path, release, namesrv.endpoint) as broker,
    ):
        settings = read_properties(call(broker.address, GET_BROKER_CONFIG).body.decode())
    known = USED_KEYS | WITHOUT_EFFECT.keys() | OLD_SPELLINGS
    assert not settings.keys() - known
    assert len(settings) > 150
    config = read_config(settings)
    assert config.name == "broker-a"
    if release == SERVER_RELEASES[-1]:
        ours = {key: text for key, text in WITHOUT_EFFECT.items() if key in settings and key not in OWN_DEFAULTS}
        assert {key: settings[key] for key in ours} == ours
        assert {key for key in RULES.changeable - settings.keys() if not key.startswith("bolide")} == set()
