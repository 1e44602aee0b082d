"""Replication of brokers with access control: they know each other by their inner credentials, and nobody else."""

import asyncio
import json
from pathlib import Path

import pytest

from bolide import aio
from bolide.clock import SystemClock
from bolide.ha.frames import plain_report
from bolide.remoting.tls import self_signed_pem
from bolide.testing import cluster
from tests.client.scenes import on_uvloop
from tests.remoting.loops import eventually

INNER = {"accessKey": "servers", "secretKey": "what servers know of each other"}
GUARDED = {
    "authenticationEnabled": True,
    "authorizationEnabled": True,
    "initAuthenticationUser": '{"username":"admin","password":"secret of admin"}',
    "innerClientAuthenticationCredentials": json.dumps(INNER),
}
ADMIN = aio.Credentials(access_key="admin", secret_key="secret of admin")


def has(folder: Path, body: bytes) -> bool:
    return any(body in path.read_bytes() for path in folder.iterdir() if path.is_file())


@pytest.mark.feature("X10", "X21")
@pytest.mark.parametrize(
    ("has_controller", "is_tls"), [(False, False), (True, True)], ids=["plain stream", "AutoSwitch over TLS"]
)
def test_guarded_brokers_copy_and_a_stranger_gets_nothing(tmp_path: Path, has_controller: bool, is_tls: bool) -> None:
    settings: dict[str, object] = dict(GUARDED)
    if is_tls:
        shown = tmp_path / "server.pem"
        shown.write_bytes(self_signed_pem(SystemClock()))
        settings |= {"tls.server.mode": "enforcing", "tls.server.certPath": shown, "useTLS": True}
        settings |= {"tls.client.authServer": True, "tls.client.trustCertPath": shown}
    connect = aio.ConnectConfig(is_tls=is_tls)

    @on_uvloop
    async def scene() -> None:
        async with cluster(replicas=2, controller=has_controller, settings=settings) as rocket:
            await rocket.create_topic("T", 1)
            master = rocket.brokers[0]
            if has_controller:
                master = await rocket.master()
            async with aio.Producer("p", rocket.namesrv, credentials=ADMIN, connect=connect) as producer:
                await producer.send("T", b"copied")
            folders = [node.directory / "store" / "commitlog" for node in rocket.brokers]
            await eventually(lambda: all(has(folder, b"copied") for folder in folders))
            host, _, port = master.address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port) + 1)
            writer.write(plain_report(0))
            try:
                assert await reader.read() == b""
            except ConnectionError:
                pass
            finally:
                writer.close()

    scene()
