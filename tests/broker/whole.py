"""A whole broker behind its port, beside a name server, and an administrator who asks it."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

from bolide.broker import registration
from bolide.broker.broker import Broker, serve
from bolide.broker.config import read_config
from bolide.clock import SystemClock
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from tests.namesrv.peers import Running, running

TIMEOUT_S = 30
SMALL = {"mappedFileSizeCommitLog": "65536", "mappedFileSizeConsumeQueue": "4000", "maxHashSlotNum": "64"}
SMALL |= {"maxIndexNum": "256", "diskMaxUsedSpaceRatio": "100", "diskSpaceCleanForciblyRatio": "100"}
SMALL |= {"diskSpaceWarningLevelRatio": "100"}
# On a real clock a busy machine keeps requests and those that wait for its disk for longer than a broker would; so it
# does with name servers, which are waited for below.
PATIENT = {"waitTimeMillsInSendQueue": "60000", "osPageCacheBusyTimeOutMills": "60000", "syncFlushTimeout": "60000"}


@dataclass
class Whole:
    """A broker called broker-a in cluster C1 and its name server."""

    broker: Broker
    ns: Running
    address: str
    client: Client

    async def ask(self, code: int, body: bytes = b"", **fields: Any) -> Command:
        return await self.client.request(self.address, Command(code, fields=fields, body=body), TIMEOUT_S)


@asynccontextmanager
async def whole(root: Path, **settings: str) -> AsyncIterator[Whole]:
    clock = SystemClock()
    given = SMALL | {"storePathRootDir": str(root / "store"), "brokerName": "broker-a", "brokerClusterName": "C1"}
    given |= {"listenPort": "0", "bindAddress": "127.0.0.1", **PATIENT}
    async with running(root, clock) as ns:
        config = read_config(given | {"namesrvAddr": ns.address} | settings)
        with patch.object(registration, "ANNOUNCE_LIMIT_S", TIMEOUT_S):
            async with serve(config, clock) as (broker, server), Client(ConnectConfig(), clock) as client:
                yield Whole(broker, ns, f"127.0.0.1:{server.port}", client)
