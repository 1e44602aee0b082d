"""Ids that clients make: never two alike, and laid out as Java's."""

import os
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bolide.clock import SystemClock
from bolide.model.host import pack_ip
from bolide.protocol.ids import RecallHandle, UniqueIds, encode_recall_handle, parse_recall_handle

OCTOBER_ENDS = 1_698_796_800_000  # 2023-11-01T00:00Z
HOUR_MS = 3_600_000


class HeldClock:
    """Shows what the test says."""

    def __init__(self, now_ms: int) -> None:
        self.ms = now_ms

    def now_ms(self) -> int:
        return self.ms

    def monotonic_s(self) -> float:
        return self.ms / 1000


def ids_at(clock: HeldClock, ip: str = "10.0.0.9") -> UniqueIds:
    return UniqueIds(pack_ip(ip), process_id=0x7209, constant=0x30946E09, clock=clock)


def time_and_counter(unique_id: str) -> tuple[int, int]:
    return int(unique_id[-12:-4], 16), int(unique_id[-4:], 16)


@pytest.fixture(params=["UTC", "Asia/Shanghai", "America/New_York"])
def zone_offset_ms(request: pytest.FixtureRequest) -> Iterator[int]:
    """The local zone is one of these for a while; the value is how far it is ahead of UTC when October ends."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", request.param)
        time.tzset()
        yield {"UTC": 0, "Asia/Shanghai": 8, "America/New_York": -4}[request.param] * HOUR_MS
    time.tzset()


def test_a_unique_id_is_laid_out_as_java_s(zone_offset_ms: int) -> None:
    clock = HeldClock(OCTOBER_ENDS - zone_offset_ms + 0x4C73DC07)
    assert ids_at(clock, "fd00::2").next() == "FD000000000000000000000000000002720930946E094C73DC070000"
    assert ids_at(clock, "10.0.0.9").next() == "0A000009720930946E094C73DC070000"


def test_time_starts_again_with_the_local_month(zone_offset_ms: int) -> None:
    clock = HeldClock(OCTOBER_ENDS - zone_offset_ms - 1)
    ids = ids_at(clock)
    last_of_october, _ = time_and_counter(ids.next())
    clock.ms += 1
    first_of_november, _ = time_and_counter(ids.next())
    assert last_of_october == 31 * 24 * HOUR_MS - 1
    assert first_of_november == 0


def test_december_is_followed_by_january(zone_offset_ms: int) -> None:
    year_ends = 1_704_067_200_000 - (zone_offset_ms if zone_offset_ms >= 0 else -5 * HOUR_MS)
    clock = HeldClock(year_ends - 1)
    ids = ids_at(clock)
    ids.next()
    clock.ms += 1
    assert time_and_counter(ids.next())[0] == 0


def test_the_last_days_of_a_month_do_not_fit_an_int32_and_do_not_fail() -> None:
    first = ids_at(HeldClock(OCTOBER_ENDS - 1)).next()
    assert len(first) == 32
    assert time_and_counter(first)[0] > 0x7FFF_FFFF


def test_process_and_constant_are_cut_to_their_fields() -> None:
    ids = UniqueIds(pack_ip("10.0.0.9"), process_id=0x12345, constant=-1, clock=HeldClock(OCTOBER_ENDS))
    assert ids.next().startswith("0A0000092345FFFFFFFF")


def test_without_an_address_the_clock_stands_in_for_it() -> None:
    ids = UniqueIds(b"", process_id=1, constant=2, clock=HeldClock(0x18BCFE56800))
    assert ids.next().startswith("CFE568000001")


def test_the_counter_wraps_and_ids_go_on() -> None:
    clock = HeldClock(OCTOBER_ENDS)
    ids = ids_at(clock)
    counters = []
    for _ in range(0x1_0002):
        clock.ms += 1
        counters.append(time_and_counter(ids.next())[1])
    assert counters[:2] == counters[-2:] == [0, 1]
    assert counters[0xFFFF] == 0xFFFF


@pytest.mark.feature("F091")
def test_a_million_ids_have_32_digits_and_no_repeat() -> None:
    ids = UniqueIds(pack_ip("10.0.0.9"), os.getpid(), 1, SystemClock())
    made = {ids.next() for _ in range(1_000_000)}
    assert len(made) == 1_000_000
    assert {len(unique_id) for unique_id in made} == {32}
    assert set("".join(made)) <= set("0123456789ABCDEF")


@pytest.mark.feature("F091")
def test_no_id_repeats_while_the_clock_stands_or_goes_back() -> None:
    clock = HeldClock(OCTOBER_ENDS + 10_000)
    ids = ids_at(clock)
    made = [ids.next() for _ in range(70_000)]
    clock.ms -= 5_000
    made += [ids.next() for _ in range(70_000)]
    clock.ms += 5_000
    made += [ids.next() for _ in range(70_000)]
    assert len(set(made)) == len(made)


@pytest.mark.feature("F091")
def test_no_id_repeats_between_threads() -> None:
    ids = ids_at(HeldClock(OCTOBER_ENDS))
    with ThreadPoolExecutor(4) as threads:
        shares = list(threads.map(lambda _: [ids.next() for _ in range(20_000)], range(4)))
    assert len({unique_id for share in shares for unique_id in share}) == 80_000


words = st.text("abcXYZ_-%|0123", min_size=1, max_size=20)


@given(words, words, st.integers(0, 2**63 - 1), words)
def test_a_recall_handle_is_read_back_with_and_without_padding(
    topic: str, broker_name: str, deliver_at: int, unique_id: str
) -> None:
    handle = RecallHandle(topic, broker_name, deliver_at, unique_id)
    text = encode_recall_handle(handle)
    assert parse_recall_handle(text) == parse_recall_handle(text.rstrip("=")) == handle


def test_a_recall_handle_is_java_s() -> None:
    handle = RecallHandle("T1", "broker-a", 1_700_000_000_000, "0A000009720930946E094C73DC070000")
    made_by_java = "djEgVDEgYnJva2VyLWEgMTcwMDAwMDAwMDAwMCAwQTAwMDAwOTcyMDkzMDk0NkUwOTRDNzNEQzA3MDAwMA=="
    assert encode_recall_handle(handle) == made_by_java
    assert parse_recall_handle(made_by_java) == handle


@pytest.mark.parametrize(
    "plain",
    [
        b"",
        b"v1",
        b"v2 t b 1 u",
        b"v1 t b 1",
        b"v1 t b 1 u more",
        b"v1 t b x u",
        b"v1  b 1 u",
        b"\xff\xfe",
        b"v1 t b -1 u",
        b"v1 t b " + b"1" * 20 + b" u",
    ],
)
def test_what_is_no_recall_handle_is_none(plain: bytes) -> None:
    assert parse_recall_handle(urlsafe_b64encode(plain).decode()) is None


@pytest.mark.parametrize("text", ["*", "é", "djE", "====", "v1 t b 1 u"])
def test_text_that_is_not_base64_is_no_recall_handle(text: str) -> None:
    assert parse_recall_handle(text) is None
