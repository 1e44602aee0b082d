"""`bolide broker --instances N`: N brokers of one cluster as one unit, for more cores than one broker uses.

Each is a process with a name, a port and a directory of its own: NAME-1, NAME-2 and so on. They know nothing of each
other; clients find all of them by the routes of their topics, and spread over them. They are started and stopped
together, and one that dies is started again. Their lines are one log, and their metrics one page. With a controller,
instance 2 of this machine and instance 2 of another are replicas of one group, for their names are the same.
"""

import argparse
import asyncio
import logging
import os
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from bolide.cli.replicas import PORT_STEP
from bolide.cli.start import ReadyFile, StopSignal, assigned, log_options, reachable, text_of
from bolide.cli.supervisor import Child, Supervisor
from bolide.clock import SystemClock
from bolide.errors import ConfigError
from bolide.files import write_whole
from bolide.metrics.gathered import gathered
from bolide.metrics.page import CONTENT_TYPE, Family, labels, pieces
from bolide.remoting.health import HEALTH, METRICS, READINESS, alive, readiness
from bolide.remoting.pages import Answer, Pages, PageServer, get_page, serve_pages
from bolide.remoting.ports import BROKER_NEIGHBOURS, free_port, is_free

if TYPE_CHECKING:
    from bolide.broker.config import BrokerConfig
    from bolide.proxy.config import ProxyConfig

INSTANCES_MAX = 64
_LOOPBACK = "127.0.0.1"
_PAGE_LIMIT_S = 5.0
_UP = Family("bolide_instance_up", "gauge", "Whether this instance's process runs; 1 or 0.")
_STARTS = Family("bolide_instance_starts_total", "counter", "How often this instance was started.")
log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Instance:
    """One broker of the unit."""

    name: str
    port: int
    data: Path
    child: Child

    def row(self, host: str) -> dict[str, object]:
        """As the ready file has it."""
        return {
            "name": self.name,
            "address": reachable(host, self.port),
            "pid": self.child.pid if self.child.is_running else 0,
            "data": str(self.data),
            **{key: value for key, value in self.child.ready.items() if key == "grpc"},
        }


def planned(options: argparse.Namespace, config: "BrokerConfig", grpc: "ProxyConfig | None") -> list[Instance]:
    """Who they are; raises ConfigError for what cannot be shared and for a port that is taken."""
    if not 1 <= options.instances <= INSTANCES_MAX:
        raise ConfigError("--instances", options.instances, f"must be 1 to {INSTANCES_MAX}")
    for key in assigned(options.assignments):
        if key.startswith("storePath") and key != "storePathRootDir":
            raise ConfigError(key, "", "would be one place for all instances: give --data, where each has a directory")
    root, instances = config.store.root.absolute(), []
    for number in range(options.instances):
        name, further = f"{config.name}-{number + 1}", PORT_STEP * number
        port = config.listen.port + further if config.listen.port else free_port(*BROKER_NEIGHBOURS)
        if not is_free(port, reachable(config.listen.host, 0).rpartition(":")[0]):
            raise ConfigError("listenPort", port, f"of instance {name} is taken")
        own = {"brokerName": name, **_ports(config, grpc, further), **_page_settings(config)}
        words = (*_given(options, name, root), "--port", str(port), "--data", str(root / name))
        settings = [word for key, value in own.items() for word in ("--set", f"{key}={value}")]
        child = Child(name, (*words, *settings, *log_options(options, name)), root / "run", relay=_relay)
        instances.append(Instance(name, port, root / name, child))
    return instances


def _given(options: argparse.Namespace, name: str, root: Path) -> list[str]:
    """What was given to the unit, for one of it."""
    words = ["broker", *(word for text in options.assignments for word in ("--set", text))]
    if options.file is not None:
        words += ["-c", str(_own_file(options.file, root / name / "broker.conf"))]
    given = {
        "--namesrv": options.namesrv,
        "--host": options.host,
        "--controller": options.controller,
        "--admin-from": options.admin_from,
    }
    words += [word for option, value in given.items() if value is not None for word in (option, value)]
    if options.advertise is not None:
        words += ["--set", f"brokerIP1={options.advertise.rpartition(':')[0]}"]
    return [*words, "--safe"] if options.safe else words


def _own_file(given: Path, own: Path) -> Path:
    """A copy of the file for one instance, which notes there what is changed at run time: that survives a copy."""
    from bolide.broker.config import RULES
    from bolide.settings import read_properties

    lines, changed = RULES.parts(text_of(given))
    _, changed_here = RULES.parts(text_of(own)) if own.exists() else ("", "")
    write_whole(own, RULES.noted(lines, read_properties(changed_here or changed)), mode=0o600)
    return own


def _ports(config: "BrokerConfig", grpc: "ProxyConfig | None", further: int) -> dict[str, int]:
    """Ports that were asked for by number; those that follow the broker's own do so in each instance."""
    asked = {
        "haListenPort": config.ha.port,
        "bolideAdvertisedPort": config.advertised_port,
        "grpcServerPort": grpc.port.listen.port if grpc is not None else 0,
    }
    ports = {key: port + further for key, port in asked.items() if port}
    return {**ports, **({"grpcServerPort": 0} if grpc is not None and not asked["grpcServerPort"] else {})}


def _page_settings(config: "BrokerConfig") -> dict[str, object]:
    """Each shows its metrics to us alone."""
    if not config.metrics.has_page:
        return {}
    return {"metricsExporterType": "PROM", "metricsPromExporterHost": _LOOPBACK, "metricsPromExporterPort": 0}


def _relay(lines: bytes) -> None:
    sys.stderr.buffer.write(lines)
    sys.stderr.buffer.flush()


async def serve(config: "BrokerConfig", instances: Sequence[Instance], file: ReadyFile) -> None:
    """Run them until SIGTERM or Ctrl-C."""
    stop, host = StopSignal(), config.listen.host

    def tell(sentence: str) -> None:
        log.warning("%s", sentence)
        write()

    def write() -> None:
        rows = [instance.row(host) for instance in instances]
        file.write(broker=rows[0]["address"], brokers=rows, **({"metrics": page} if page else {}))

    page = ""
    async with Supervisor(tell) as supervisor:
        await supervisor.start(*(instance.child for instance in instances))
        async with _one_page(config, instances) as server:
            if server is not None:
                page = f"http://{reachable(*_split(server.addresses[0]))}{METRICS}"
            write()
            _greet(config, instances, page)
            await stop.wait()


@asynccontextmanager
async def _one_page(config: "BrokerConfig", instances: Sequence[Instance]) -> AsyncIterator[PageServer | None]:
    """The metrics of all, whether each is ready, and that we live."""
    if not config.metrics.has_page:
        yield None
        return
    of_all = {"cluster": config.cluster, "node_type": "broker", **config.metrics.own_labels}

    async def metrics() -> Answer:
        found = await asyncio.gather(*(_page_of(instance.child, METRICS) for instance in instances))
        rows = [(labels(node_id=instance.name), instance.child) for instance in instances]
        about = [
            (_UP, [(text, float(child.is_running)) for text, child in rows]),
            (_STARTS, [(text, float(child.start_count)) for text, child in rows]),
        ]
        texts = [text for status, text in found if status == 200]
        return Answer(gathered(["".join(pieces(about, of_all, INSTANCES_MAX)), *texts]), content_type=CONTENT_TYPE)

    async def readyz() -> Answer:
        found = await asyncio.gather(*(_page_of(instance.child, READINESS) for instance in instances))
        return readiness(
            "; ".join(
                f"{instance.name}: {text.strip()}"
                for instance, (status, text) in zip(instances, found, strict=True)
                if status != 200
            )
        )

    pages: Pages = {METRICS: metrics, HEALTH: alive, READINESS: readyz}
    host = config.metrics.host or config.listen.host
    async with serve_pages(host, config.metrics.port, pages, SystemClock()) as server:
        yield server


async def _page_of(child: Child, path: str) -> tuple[int, str]:
    """A page of one instance; one that has none at the moment says so."""
    if not child.is_running or "metrics" not in child.ready:
        return 503, "is not there"
    address = str(child.ready["metrics"]).removeprefix("http://").removesuffix(METRICS)
    try:
        async with asyncio.timeout(_PAGE_LIMIT_S):
            return await get_page(*_split(address), path)
    except (OSError, ValueError, asyncio.IncompleteReadError) as problem:
        return 503, f"does not answer: {str(problem) or 'timeout'}"


def _split(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host.strip("[]"), int(port)


def _greet(config: "BrokerConfig", instances: Sequence[Instance], page: str) -> None:
    from bolide import __version__, kernel

    lines = [
        f"Bolide {__version__} runs {len(instances)} brokers of {config.cluster} ({kernel.NAME} kernel)",
        *(
            f"  {instance.name:<17} {reachable(config.listen.host, instance.port)}, pid {instance.child.pid}, "
            f"messages in {instance.data}"
            for instance in instances
        ),
        f"  name servers      {config.namesrv or 'none: clients find no broker; give them with -n'}",
        *([f"  metrics           {page}"] if page else []),
        f"  stop              Ctrl-C, or kill {os.getpid()}",
    ]
    sys.stdout.write("\n".join(lines) + "\n")
    sys.stdout.flush()
