"""A doctor at a real cluster: a healthy one, and faults that are built."""

import asyncio
from pathlib import Path

import pytest

from bolide import aio
from bolide.admin.doctor.checks import examine, exit_code
from bolide.admin.doctor.facts import Facts
from bolide.admin.doctor.findings import Finding
from bolide.admin.doctor.gather import Doctor, machine_of
from bolide.admin.doctor.probes import A_BROKER, spoken_at
from bolide.client.config import Credentials
from bolide.clock import SystemClock
from bolide.protocol.bodies import ConsumerMember, Heartbeat
from bolide.protocol.bodies.clients import ConsumeType
from bolide.protocol.codes import RequestCode
from bolide.protocol.command import Command
from bolide.remoting.client import Client
from bolide.remoting.config import ConnectConfig
from bolide.testing import AsyncCluster, cluster
from tests.remoting.loops import both_loops

TRACED = {"traceTopicEnable": "true"}


async def gathered(here: AsyncCluster, topic: str | None = None) -> tuple[Facts, list[Finding]]:
    facts = await Doctor(here.namesrv, between_s=0).gather(topic)
    # The disk of the machine that runs this test is nobody's fault.
    return facts, [each for each in examine(facts) if each.number not in ("D07", "D03")]


def numbers(findings: list[Finding]) -> set[str]:
    return {finding.number for finding in findings if finding.number.startswith("D")}


@pytest.mark.feature("X33")
@both_loops
async def test_a_healthy_cluster_is_told_to_be_so() -> None:
    async with cluster(namesrvs=2, settings=TRACED) as here, aio.Producer("pg", here.namesrv) as producer:
        await here.create_topic("Orders")
        await producer.send("Orders", b"one")
        async with aio.Consumer("readers", "Orders", here.namesrv, start_from=aio.StartFrom.oldest()) as consumer:
            (await consumer.receive(1))[0].ack()
            facts, findings = await gathered(here)
        assert (facts.unseen, findings) == ((), [])
        assert [group.name for group in facts.groups] == ["readers"]
        assert exit_code(findings, facts.unseen) == 0


@both_loops
async def test_a_broker_that_died_is_found_and_the_rest_is_looked_at_all_the_same() -> None:
    async with cluster(brokers=2) as here:
        await here.create_topic("Orders")
        await here.brokers[1].kill()
        facts, findings = await gathered(here)
        assert {each.name for each in facts.topics} == {"Orders"}
        assert "D01" in numbers(findings) or len(facts.brokers) == 1


@both_loops
async def test_a_topic_without_a_route_is_told_with_why() -> None:
    async with cluster() as here:
        _, findings = await gathered(here, "Nowhere")
        assert numbers(findings) == {"D02"}
        assert "Nowhere" in findings[0].seen


@both_loops
async def test_members_that_subscribe_differently_are_found() -> None:
    async with cluster() as here:
        await here.create_topic("Orders")
        async with (
            aio.Consumer("readers", {"Orders": "A"}, here.namesrv),
            aio.Consumer("readers", {"Orders": "B"}, here.namesrv, instance_name="other"),
        ):
            _, findings = await gathered(here)
        assert "D04" in numbers(findings)


@both_loops
async def test_half_messages_whose_producers_are_gone_are_found() -> None:
    async with cluster() as here:
        await here.create_topic("Orders")
        async with aio.TransactionProducer("tg", here.namesrv, checker=lambda _: aio.Outcome.UNKNOWN) as producer:
            transaction = producer.transaction("Orders", b"half")
            await transaction.start()
            await transaction.unknown()
            _, findings = await gathered(here)
            assert "D18" not in numbers(findings)
        _, findings = await gathered(here)
        assert "D18" in numbers(findings)


@both_loops
async def test_a_port_of_another_protocol_is_told_from_one_that_is_closed() -> None:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(bytes([0, 0, 6, 4, 0, 0, 0, 0, 0]) + bytes(6))
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        assert await spoken_at(address) == "HTTP/2 (gRPC)"
    assert await spoken_at("127.0.0.1:1") == ""


@both_loops
async def test_where_no_name_server_answers_it_could_not_look() -> None:
    facts = await Doctor("127.0.0.1:1", between_s=0).gather()
    assert facts.unseen
    assert numbers(examine(facts)) == {"D01"}


def test_the_machine_of_a_store_is_looked_at_without_leaving_anything(tmp_path: Path) -> None:
    seen = machine_of(tmp_path)
    assert seen.open_files_max > 0
    assert seen.memory_free > 0
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("is_at_server", [False, True])
def test_a_group_that_a_reset_would_not_move_is_found(is_at_server: bool) -> None:
    """As a pull consumer of Java joins; the same group is no finding where the broker puts it elsewhere itself."""

    async def scene() -> list[Finding]:
        settings = {"useServerSideResetOffset": str(is_at_server).lower()}
        async with cluster(settings=settings) as here, Client(ConnectConfig(), SystemClock()) as peer:
            await here.create_topic("Orders")
            member = ConsumerMember(group_name="pullers", consume_type=ConsumeType.CONSUME_ACTIVELY)
            heartbeat = Heartbeat(client_id="java@1", consumer_data_set=[member])
            address = here.brokers[0].address
            answer = await peer.request(address, Command(RequestCode.HEART_BEAT, body=heartbeat.encode()), 30.0)
            assert answer.code == 0
            facts = await Doctor(here.namesrv, between_s=0).gather(group="pullers")
            assert facts.groups[0].is_pulling
            return [each for each in examine(facts) if each.number == "D14"]

    found = asyncio.run(scene())
    assert len(found) == (not is_at_server)


@both_loops
async def test_a_broker_that_is_asked_for_names_is_told_from_one_that_is_silent() -> None:
    async with cluster() as here:
        address = here.brokers[0].address
        facts = await Doctor(address, between_s=0).gather()
        assert facts.wrong_protocols == {address: A_BROKER}
        assert numbers(examine(facts)) == {"D01", "D08"}


@both_loops
async def test_a_master_that_waits_for_slaves_and_brokers_without_traces_are_noted() -> None:
    async with cluster(settings={"brokerRole": "SYNC_MASTER"}) as here:
        facts, findings = await gathered(here)
        assert facts.brokers[0].slaves == ()
        assert {each.number for each in findings} == {"N05", "N06"}


@pytest.mark.parametrize("password", ["12345678", "another-one-1"])
def test_a_user_of_rocketmqs_examples_is_noted_where_its_password_is_theirs(password: str) -> None:
    async def scene() -> list[str]:
        user = f'{{"username":"rocketmq","password":"{password}"}}'
        settings = {**TRACED, "authenticationEnabled": "true", "initAuthenticationUser": user}
        async with cluster(settings=settings) as here:
            credentials = Credentials(access_key="rocketmq", secret_key=password)
            doctor = Doctor(here.namesrv, between_s=0, credentials=credentials, tries_defaults=True)
            return [each.number for each in examine(await doctor.gather()) if each.number == "N07"]

    assert asyncio.run(scene()) == (["N07"] if password == "12345678" else [])
