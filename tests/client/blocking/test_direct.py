"""A blocking send on the caller's own connection: what is read, what is refused, and what is tried again elsewhere."""

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager

import pytest

import bolide
from bolide.client.blocking.connection import REST_MAX_S, Answer, Connection, ConnectionPool
from bolide.client.blocking.direct import send_item
from bolide.client.blocking.loop import BackgroundLoop
from bolide.errors import ConnectError, ConnectionLost, ProtocolError, RequestTimeout
from bolide.protocol.command import Command
from bolide.remoting.config import ConnectConfig
from bolide.testing import Cluster, VirtualClock, cluster

WAIT_S = 60.0  # of a machine with much else to do
ITEM = (b"body", b"", 0)
FIELDS = {"msgId": "0A01020300002A9F0000000000000000", "queueId": "3", "queueOffset": "12"}
HEAD = b'{"code":310,"extFields":{"b":"T","e":"'


@contextmanager
def answering(*parts: bytes) -> Iterator[str]:
    """A peer that answers whatever it is sent first with these bytes, each by itself, and hangs up at the end."""
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            connection, _ = server.accept()
            with connection:
                connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                connection.recv(65536)
                for part in parts:
                    connection.sendall(part)
                connection.shutdown(socket.SHUT_WR)
                connection.recv(65536)

        peer = threading.Thread(target=serve)
        peer.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        peer.join()


def receipt(opaque: int = 1, code: int = 0) -> bytes:
    return Command(code, opaque, 1, FIELDS, remark=None if code == 0 else "no").encode()


def send(address: str, timeout_s: float = 5.0) -> object:
    connection = Connection(address, 1.0)
    try:
        return send_item(connection, HEAD, 3, ITEM, "ID", 1, timeout_s)
    finally:
        connection.close()


@pytest.mark.parametrize("cut", [1, 4, 8, 60])
def test_a_receipt_is_read_however_it_is_cut(cut: int) -> None:
    with answering(receipt()[:cut], receipt()[cut:]) as address:
        assert send(address) == (1, 3, 12, FIELDS["msgId"])


def test_what_is_for_nobody_here_is_passed_over() -> None:
    notice = Command(40, 9, 2, {"consumerGroup": "g"}).encode()
    with answering(notice + receipt(77), receipt(1)) as address:
        assert send(address) == (1, 3, 12, FIELDS["msgId"])


def test_an_answer_with_more_to_say_is_given_whole() -> None:
    with answering(receipt(code=14)) as address:
        answer = send(address)
    assert isinstance(answer, Answer)
    assert (answer.code, answer.remark) == (14, "no")


@pytest.mark.parametrize(
    ("parts", "problem", "text"),
    [
        ((), ConnectionLost, "closed the connection before it answered"),
        ((receipt()[:20],), ConnectionLost, "closed the connection before it answered"),
        ((b"HTTP/1.1 400 Bad Request\r\n",), ProtocolError, "a frame says"),
    ],
)
def test_a_peer_that_says_no_answer_is_told(parts: tuple[bytes, ...], problem: type[Exception], text: str) -> None:
    with answering(*parts) as address, pytest.raises(problem, match=text):
        send(address)


def test_a_silent_peer_is_given_up_after_the_limit() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(RequestTimeout, match=r"did not answer within 0\.05 s"):
            send(address, 0.05)


def test_an_address_where_nobody_listens_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
    with pytest.raises(ConnectError, match=address):
        Connection(address, 1.0)


def test_a_connection_that_rested_too_long_is_not_trusted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        clock = HeldClock()
        pool = ConnectionPool(ConnectConfig(), clock)
        connection = pool.take(address, 1.0)
        pool.give_back(connection)
        clock.now_s += REST_MAX_S - 1
        assert pool.take(address, 1.0) is connection
        pool.give_back(connection)
        clock.now_s += REST_MAX_S + 1
        fresh = pool.take(address, 1.0)
        assert fresh is not connection
        pool.close()
        pool.give_back(fresh)
        assert fresh._socket.fileno() == -1


class HeldClock(VirtualClock):
    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s


@pytest.fixture(scope="module")
def rocket() -> Iterator[Cluster]:
    with cluster() as running:
        yield running


def test_a_send_over_tls_does_not_go_through_the_loop_either(rocket: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    connect = ConnectConfig(is_tls=True, connect_timeout_ms=60_000)
    with bolide.Producer("tls", rocket.namesrv, connect=connect, timeout_s=WAIT_S) as producer:
        producer.send("Secret", b"first")
        with monkeypatch.context() as patch:
            patch.setattr(BackgroundLoop, "run", None)
            receipts = [producer.send("Secret", b"x" * size) for size in (1, 100, 3000, 300_000)]
    assert all(receipt.is_ok for receipt in receipts)


def test_a_peer_that_is_silent_over_tls_is_given_up_after_the_limit(rocket: Cluster) -> None:
    connection = ConnectionPool(ConnectConfig(is_tls=True), HeldClock()).take(rocket.brokers[0].address, WAIT_S)
    with pytest.raises(RequestTimeout, match=r"did not answer within 0\.05 s"):
        connection.receive(0.05)
    connection.close()


def test_frames_that_come_together_and_in_pieces_are_told_apart() -> None:
    answers = [Command(0, number, 1, {}, body=b"%d" % number * 3000).encode() for number in (1, 2, 3)]
    whole = b"".join(answers)
    with answering(whole[:5000], whole[5000:9007], whole[9007:]) as address:
        connection = Connection(address, 5.0)
        connection.put([Command(11) for _ in answers])
        assert [bytes(connection.take(number).body[:1]) for number in (3, 1, 2)] == [b"3", b"1", b"2"]
        connection.close()


def test_what_was_read_ahead_is_seen_by_those_who_select() -> None:
    with answering(receipt(1) + receipt(2)) as address:
        connection = Connection(address, 5.0)
        connection.put([Command(11), Command(11)])
        assert not connection.has_pending
        assert connection.next().opaque == 1
        assert connection.has_pending
        assert connection.next().opaque == 2
        assert not connection.has_pending
        connection.close()


@pytest.mark.feature("F095")
def test_threads_share_a_producer_and_each_gets_his_own_receipts(rocket: Cluster) -> None:
    receipts: list[bolide.Receipt] = []
    with bolide.Producer("threads", rocket.namesrv) as producer:
        producer.send("Threads", b"first")

        def work() -> None:
            receipts.extend(producer.send("Threads", b"x", tags="T") for _ in range(25))

        threads = [threading.Thread(target=work) for _ in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert len({(receipt.queue, receipt.queue_offset) for receipt in receipts}) == 200
    assert len({receipt.msg_id for receipt in receipts}) == 200


def test_what_threads_submit_arrives_once_each_and_in_the_order_of_each_shard(rocket: Cluster) -> None:
    receipts: list[Future[bolide.Receipt]] = []
    with bolide.Producer("submit", rocket.namesrv, linger_ms=2, timeout_s=WAIT_S) as producer:

        def work(shard: str) -> None:
            bodies = [b"%d" % number for number in range(200)]
            receipts.extend(producer.submit("Submit", body, tags=shard, shard=shard) for body in bodies)

        threads = [threading.Thread(target=work, args=(f"s{number}",)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        producer.flush()
    assert all(receipt.result(0).is_ok for receipt in receipts)
    seen: dict[str | None, list[int]] = {}
    with bolide.Consumer("submit", "Submit", rocket.namesrv, start_from=bolide.StartFrom.oldest()) as consumer:
        for count, message in enumerate(consumer, 1):
            seen.setdefault(message.tags, []).append(int(message.body))
            if count == 800:
                break
    assert seen == {f"s{number}": list(range(200)) for number in range(4)}


def test_a_submission_that_is_refused_says_so_in_its_future(rocket: Cluster) -> None:
    with bolide.Producer("refused", rocket.namesrv) as producer:
        with pytest.raises(bolide.BolideError, match="body is empty"):
            producer.submit("Refused", b"").result(20)
        assert producer.submit("Refused", b"x").result(20).is_ok
