"""A broker's page of metrics as it is asked for, and its series as a table."""

import asyncio
import re

from bolide.broker.broker import Broker

PROM = {"metricsExporterType": "PROM", "metricsPromExporterPort": "0"}
_SERIES = re.compile(r"^(\w+)\{(.*)\} (\S+)$")
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')


async def ask(address: str, path: str = "/metrics") -> tuple[int, str]:
    host, port = address.rsplit(":", 1)
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET {path} HTTP/1.0\r\n\r\n".encode())
    answer = await reader.read()
    writer.close()
    head, _, text = answer.decode().partition("\r\n\r\n")
    return int(head.split()[1]), text


class Scraped:
    """What a page says."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.series: list[tuple[str, dict[str, str], float]] = []
        for line in text.splitlines():
            found = _SERIES.match(line)
            if found is not None:
                self.series.append((found[1], dict(_LABEL.findall(found[2])), float(found[3])))
            else:
                assert line.startswith(("# HELP ", "# TYPE ")), line
        # Prometheus takes no page on which a series is twice.
        written = [line.rpartition(" ")[0] for line in text.splitlines() if not line.startswith("#")]
        assert len(written) == len(set(written))

    def value(self, name: str, **labels: str) -> float | None:
        """The sum over the series that have these labels; None where there is none."""
        found = [value for at, texts, value in self.series if at == name and labels.items() <= texts.items()]
        return sum(found) if found else None

    def labels(self, name: str) -> set[str]:
        return {label for at, texts, _ in self.series if at == name for label in texts}


async def scrape(broker: Broker) -> Scraped:
    assert broker.metrics_port.server is not None
    status, text = await ask(broker.metrics_port.server.addresses[0])
    assert status == 200
    return Scraped(text)
