"""RocketMQ's proxies as real processes: Apache's, before a cluster or with a broker in it (local mode), and ours."""

import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from interop.cluster import (
    HOST,
    JDK_DOORS,
    LARGE,
    SOURCE,
    is_listening,
    loopback_settings,
    prepare_home,
    small_store_settings,
    write_properties,
)
from interop.process import Program, await_that, free_port, running
from interop.release import Role, class_path
from interop.wire import Address

APACHE_RELEASE = "5.5.0"
PROXY_START_TIMEOUT_S = 180.0  # Java compiles much at its start, and a busy machine is slow
CLUSTER = "InteropCluster"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A gRPC port that answers; `broker` is the address of the one in the same process."""

    program: Program
    endpoint: str
    broker: Address | None = None
    broker_name: str = ""


@contextmanager
def apache_proxy(
    directory: Path,
    name_servers: str,
    *,
    local: Mapping[str, object] | None = None,
    cluster: str = CLUSTER,
    port: int | None = None,
    jvm: tuple[str, ...] = LARGE,
) -> Iterator[Proxy]:
    """Apache's proxy before a cluster; with `local`, settings of the broker that it has in it then."""
    port, remoting_port, broker_port = port or free_port(), free_port(), free_port(-2, 1)
    home = prepare_home(directory / f"apache-proxy-{port}")
    settings = {
        "rocketMQClusterName": cluster,
        "namesrvAddr": name_servers,
        "proxyMode": "CLUSTER" if local is None else "LOCAL",
        "grpcServerPort": port,
        "remotingListenPort": remoting_port,
        "localServeAddr": HOST,
        "useEndpointPortFromRequest": True,
        "enableACL": False,
    }
    file = home / "rmq-proxy.json"
    file.write_text(json.dumps(settings))
    arguments = ["-pc", str(file), "-n", name_servers, "-pm", "cluster" if local is None else "local"]
    if local is not None:
        properties = {
            "brokerClusterName": cluster,
            "brokerName": "broker-a",
            "brokerId": 0,
            "listenPort": broker_port,
            "haListenPort": broker_port + 1,
            "namesrvAddr": name_servers,
            **loopback_settings(),
            **small_store_settings(home / "store"),
            **local,
        }
        arguments += ["-bc", str(write_properties(home / "broker.conf", properties))]
    command = ["java", *JDK_DOORS, *jvm, f"-Duser.home={home}", f"-Drocketmq.home.dir={home}"]
    command += ["-cp", class_path(f"proxy-{APACHE_RELEASE}", Role.BROKER), "org.apache.rocketmq.proxy.ProxyStartup"]
    with running("proxy", [*command, *arguments], home, {"ROCKETMQ_HOME": str(home)}) as program:
        _await_port(program, port)
        broker = None if local is None else (HOST, broker_port)
        yield Proxy(program, f"{HOST}:{port}", broker, "" if local is None else "broker-a")


@contextmanager
def bolide_proxy(
    directory: Path, name_servers: str, settings: Mapping[str, object] | None = None, port: int | None = None
) -> Iterator[Proxy]:
    """`bolide proxy` before a cluster; with a port given it can be started again where it was."""
    port = port or free_port()
    home = directory / f"bolide-proxy-{port}"
    home.mkdir(parents=True, exist_ok=True)
    file = home / "rmq-proxy.json"
    file.write_text(json.dumps({"namesrvAddr": name_servers, **(settings or {})}))
    command = [sys.executable, "-c", "from bolide.cli.main import main; main()", "proxy", "-c", str(file)]
    command += ["--port", str(port), "--host", HOST]
    with running("proxy", command, home, {"PYTHONPATH": str(SOURCE)}) as program:
        _await_port(program, port)
        yield Proxy(program, f"{HOST}:{port}")


def _await_port(program: Program, port: int) -> None:
    def is_up() -> bool:
        if not program.is_running:
            raise AssertionError(f"{program.name} ended at its start:\n{program.output()}")
        return is_listening((HOST, port))

    await_that(f"{program.log} shows a start", is_up, PROXY_START_TIMEOUT_S)
