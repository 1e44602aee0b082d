"""Servers that check access know each other by their inner credentials, and show one certificate at all ports."""

import asyncio
import ssl
import stat
from pathlib import Path

import msgspec
import pytest
from cryptography import x509

from bolide.access.sealing import digest, unseal, wanted
from bolide.access.users import UserTable
from bolide.broker.broker import serve
from bolide.broker.config import read_config
from bolide.clock import SystemClock
from bolide.controller.config import read_config as controller_config
from bolide.controller.server import serve as serve_controller
from bolide.namesrv.config import read_config as namesrv_config
from bolide.namesrv.server import serve as serve_namesrv
from bolide.protocol.bodies import Clusters
from bolide.protocol.bodies.access import Acl, AclEntry, AclPolicy, User
from bolide.protocol.codes import RequestCode, ResponseCode
from bolide.protocol.command import Command
from bolide.proxy.config import read_config as proxy_config
from bolide.proxy.server import serve_beside
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.remoting.ports import free_port
from tests.access.walking import request_of, signed, users_of
from tests.broker.replication.replicas import Life, group
from tests.broker.whole import SMALL
from tests.remoting.authority import Authority
from tests.remoting.loops import eventually, one_loop

HERE = {"listenPort": "0", "bindAddress": "127.0.0.1"}
INNER = {"innerClientAuthenticationCredentials": '{"accessKey":"inner","secretKey":"inner-secret"}'}
ON = {"authenticationEnabled": "true", "authorizationEnabled": "true"}
ROOT = {"initAuthenticationUser": '{"username":"root","password":"root-secret"}'}
TIMEOUT_S = 20


@pytest.mark.feature("X10")
@one_loop
async def test_a_broker_registers_with_a_name_server_that_checks_if_it_knows_the_inner_credentials(
    tmp_path: Path,
) -> None:
    clock = SystemClock()
    namesrv = namesrv_config({"kvConfigPath": str(tmp_path / "ns" / "kv.json"), **HERE, **ON, **INNER})
    async with serve_namesrv(namesrv, clock) as (_, at), Client(ConnectConfig(), clock) as client:
        address = f"127.0.0.1:{at.port}"
        for name, given in (("known", INNER), ("stranger", {})):
            own = SMALL | HERE | {"storePathRootDir": str(tmp_path / name), "brokerName": name, "namesrvAddr": address}
            async with serve(read_config(own | given), clock):
                asked = signed(Command(RequestCode.GET_BROKER_CLUSTER_INFO), "inner", "inner-secret")
                answer = await client.request(address, asked, TIMEOUT_S)
                assert set(Clusters.decode(answer.body).broker_addr_table) == ({name} if given else set())
        assert (await client.request(address, Command(106), TIMEOUT_S)).code == 16


@pytest.mark.feature("X10")
@one_loop
async def test_a_slave_follows_a_master_that_checks_with_the_inner_credentials(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers, Client(ConnectConfig(), SystemClock()) as client:
        master = await brokers.master(**ON, **INNER, **ROOT)
        slave = await brokers.start("slave", brokerRole="SLAVE", brokerId="1", **ON, **INNER, **ROOT)
        made = request_of(RequestCode.UPDATE_AND_CREATE_TOPIC)
        made.fields["topic"] = "Made"
        assert (await client.request(master.address, signed(made, "root", "root-secret"), TIMEOUT_S)).code == 0
        await eventually(lambda: slave.broker.state.topics.find("Made") is not None, 30)
        send = request_of(RequestCode.SEND_MESSAGE_V2)
        send.fields["b"], send.body = "Made", b"kept"
        assert (await client.request(master.address, signed(send, "root", "root-secret"), TIMEOUT_S)).code == 0
        await eventually(lambda: slave.store.log_end == master.store.log_end, 30)


@pytest.mark.feature("X10")
@one_loop
async def test_a_slaves_users_are_its_masters_and_are_changed_there(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers, Client(ConnectConfig(), SystemClock()) as client:
        master = await brokers.master(**ON, **INNER, **ROOT)

        async def ask(place: Life, code: int, fields: dict[str, str], body: bytes = b"") -> tuple[int, str]:
            command = signed(Command(code, fields=fields, body=body), "root", "root-secret")
            answer = await client.request(place.address, command, TIMEOUT_S)
            assert b"bobs-secret" not in answer.encode()
            return answer.code, answer.remark or ""

        bob = User(username="bob", password="bobs-secret").encode()
        assert (await ask(master, 3001, {"username": "bob"}, bob))[0] == 0
        slave = await brokers.start("slave", brokerRole="SLAVE", brokerId="1", **ON, **INNER, **ROOT)
        mine, his = users_of(slave), users_of(master)
        await eventually(lambda: mine.secret_of("bob") == "bobs-secret", 30)
        assert stat.S_IMODE((tmp_path / "slave" / "config" / "users.json").stat().st_mode) == 0o600

        grant = AclEntry(actions=["Pub"], decision="Allow", resource="Topic:T")
        acl = Acl(subject="User:bob", policies=[AclPolicy(entries=[grant], policy_type="Custom")]).encode()
        ann = User(username="ann", password="anns-secret").encode()
        for code, fields, body in (
            (3006, {"subject": "User:bob"}, acl),
            (3008, {"subject": "User:bob"}, b""),
            (3001, {"username": "ann"}, ann),
            (3002, {"username": "ann"}, User(username="ann", password="other-secret").encode()),
            (3003, {"username": "ann"}, b""),
        ):  # as `bolide user` and `bolide acl` do it: the master first; what it did is nothing new to the slave
            refused = await ask(slave, code, fields, body)
            assert refused[0] == 16, (code, refused)
            assert "are those of its master" in refused[1], (code, refused)
            assert (await ask(master, code, fields, body))[0] == 0, code
            assert (await ask(slave, code, fields, body))[0] == 0, code
            assert mine.table == his.table, code


@pytest.mark.feature("X10")
@one_loop
async def test_what_a_slave_asks_for_is_sealed_for_those_with_the_inner_secret(tmp_path: Path) -> None:
    async with group(tmp_path) as brokers, Client(ConnectConfig(), SystemClock()) as client:
        master = await brokers.master(**ON, **INNER, **ROOT)
        table = users_of(master).table
        question = wanted(UserTable(), "inner-secret")
        asked = Command(RequestCode.GET_SEALED_USERS, body=msgspec.json.encode(question))
        answer = await client.request(master.address, signed(asked, "root", "root-secret"), TIMEOUT_S)
        assert answer.code == 0
        assert unseal(answer.body, "inner-secret", question.number) == table
        for word in (b"root", b"inner", b"password"):
            assert word not in answer.body
        for body, secret, number in (
            (answer.body, "another-secret", question.number),
            (answer.body, "inner-secret", bytes(16)),
            (answer.body[:-1] + b"?", "inner-secret", question.number),
            (answer.body[:40], "inner-secret", question.number),
            (b"", "inner-secret", question.number),
        ):
            with pytest.raises(ValueError, match="not sealed with our"):
                unseal(body, secret, number)
        assert digest(table, "inner-secret") != digest(table, "another-secret"), "nothing to guess passwords by"
        same = Command(RequestCode.GET_SEALED_USERS, body=msgspec.json.encode(wanted(table, "inner-secret")))
        assert (await client.request(master.address, signed(same, "root", "root-secret"), TIMEOUT_S)).body == b""
        odd = Command(RequestCode.GET_SEALED_USERS, body=b'{"challenge":"ff","have":""}')
        assert (await client.request(master.address, signed(odd, "root", "root-secret"), TIMEOUT_S)).code == 29
        slave = await brokers.start("slave", brokerRole="SLAVE", brokerId="1", **ON, **INNER, **ROOT)
        told = await client.request(slave.address, signed(asked, "root", "root-secret"), TIMEOUT_S)
        assert (told.code, told.body) == (ResponseCode.SYSTEM_BUSY, b""), "what a slave has may be old"


async def shown_at(port: int, alpn: str = "") -> str:
    """The name in the certificate that a port shows."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if alpn:
        context.set_alpn_protocols([alpn])
    _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    try:
        shown = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        (name,) = x509.load_der_x509_certificate(shown).subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
        return str(name.value)
    finally:
        writer.transport.abort()


@pytest.mark.feature("X21")
@one_loop
async def test_tls_properties_and_a_renewed_certificate_are_in_force_on_every_port(tmp_path: Path) -> None:
    clock, authority = SystemClock(), Authority(tmp_path)
    cert, key = authority.issue("first", file="server")
    tls = tmp_path / "tls.properties"
    tls.write_text(f"tls.server.mode=enforcing\ntls.server.certPath={cert}\ntls.server.keyPath={key}\n")
    given = {**HERE, "tls.config.file": str(tls)}
    port, ha_port = free_port(-2), free_port()
    own = {"storePathRootDir": str(tmp_path / "store"), "brokerName": "b", "haListenPort": str(ha_port)}
    async with (
        serve_namesrv(namesrv_config({"kvConfigPath": str(tmp_path / "kv.json"), **given}), clock) as (_, namesrv),
        serve_controller(controller_config({"controllerStorePath": str(tmp_path / "c"), **given}), clock) as (
            _,
            control,
        ),
        serve(read_config(SMALL | given | own | {"listenPort": str(port)}), clock) as (broker, _),
        serve_beside(broker, proxy_config(given)[0], clock) as (_, grpc),
    ):
        ports = {"broker": port, "VIP": port - 2, "HA": ha_port, "namesrv": namesrv.port, "controller": control.port}

        async def names() -> dict[str, str]:
            found = {name: await shown_at(each) for name, each in ports.items()}
            return found | {"gRPC": await shown_at(grpc.port, "h2")}

        assert set((await names()).values()) == {"first"}
        authority.issue("second", file="server")
        assert set((await names()).values()) == {"second"}
        assert len(await names()) == 6
