"""Compressed bodies: the three kinds, their flags, and bodies that lie."""

import sys
import zlib
from contextlib import suppress

import lz4.frame
import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from bolide.errors import ClientError, ProtocolError
from bolide.protocol import sysflags
from bolide.protocol.compression import Compression, compress, compression_of, decompress, with_compression

BODY = b"the same again and again, " * 400
KINDS = list(Compression)


@pytest.mark.feature("X29")
@pytest.mark.parametrize("kind", KINDS)
def test_a_body_survives_every_kind_of_compression(kind: Compression) -> None:
    small = compress(BODY, kind)
    assert len(small) < len(BODY) // 10
    assert decompress(small, kind) == BODY


@given(st.sampled_from(KINDS), st.binary(max_size=300))
def test_any_body_survives(kind: Compression, body: bytes) -> None:
    assert decompress(compress(body, kind), kind) == body


def zstd_stream(body: bytes) -> bytes:
    """As Java's output stream writes it: without the size of the content."""
    stream = zstandard.ZstdCompressor(level=5).compressobj()
    return stream.compress(body) + stream.flush()


# What the compressors of RocketMQ 5.5.0 made of JAVA_BODY at level 5.
JAVA_BODY = b"again and again " * 20
JAVA_FRAMES = [
    (Compression.LZ4, "04224D1860707318000000A3616761696E20616E64200A000F1000FF18506761696E2000000000"),
    (Compression.ZSTD, "28B52FFD00589C000050616761696E20616E642002002C3315A85B90010000"),
    (Compression.ZLIB, "785E4B4C4FCCCC5348CC4B514884B046F924F10109BA6F7D"),
]


@pytest.mark.feature("X29")
@pytest.mark.parametrize(("kind", "frame"), JAVA_FRAMES)
def test_java_s_frames_are_read(kind: Compression, frame: str) -> None:
    assert decompress(bytes.fromhex(frame), kind) == JAVA_BODY


@pytest.mark.parametrize(
    ("kind", "frame"),
    [
        (Compression.ZLIB, zlib.compress(BODY, 5)),
        (Compression.LZ4, lz4.frame.compress(BODY, store_size=False)),
        (Compression.LZ4, lz4.frame.compress(BODY, block_size=lz4.frame.BLOCKSIZE_MAX4MB, content_checksum=True)),
        (Compression.ZSTD, zstd_stream(BODY)),
    ],
)
def test_frames_of_other_writers_are_read(kind: Compression, frame: bytes) -> None:
    assert decompress(frame, kind) == BODY


def test_an_empty_zstd_stream_is_an_empty_body() -> None:
    assert decompress(zstd_stream(b""), Compression.ZSTD) == b""


def test_each_kind_writes_its_own_format() -> None:
    assert compress(BODY, Compression.ZLIB)[0] == 0x78
    assert compress(BODY, Compression.LZ4)[:4] == bytes.fromhex("04224D18")
    assert compress(BODY, Compression.ZSTD)[:4] == bytes.fromhex("28B52FFD")


@pytest.mark.parametrize(
    ("sys_flag", "kind"),
    [
        (0x0, None),
        (0x300, None),
        (0x1, Compression.ZLIB),
        (0x301, Compression.ZLIB),
        (0x101, Compression.LZ4),
        (0x201, Compression.ZSTD),
        (0x1 | sysflags.COMMITTED | sysflags.HOSTS_MASK, Compression.ZLIB),
    ],
)
def test_the_flag_says_how(sys_flag: int, kind: Compression | None) -> None:
    assert compression_of(sys_flag) == kind


@pytest.mark.parametrize("number", [4, 5, 6, 7])
def test_a_kind_nobody_knows_is_an_error(number: int) -> None:
    with pytest.raises(ProtocolError, match=f"names compression {number}"):
        compression_of(1 | number << 8)


@pytest.mark.feature("F094")
def test_a_compressed_body_s_flag_is_what_java_sends() -> None:
    assert with_compression(0, Compression.ZLIB) == 769
    assert with_compression(0, Compression.LZ4) == 0x101
    assert with_compression(sysflags.PREPARED, Compression.ZSTD) == 0x205
    assert with_compression(0x301, Compression.LZ4) == 0x101


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_larger_than_the_limit_is_not_unpacked(kind: Compression) -> None:
    bomb = compress(bytes(5_000_000), kind)
    assert len(bomb) < 30_000
    with pytest.raises(ProtocolError, match="more than 4999999 bytes"):
        decompress(bomb, kind, 4_999_999)
    assert len(decompress(bomb, kind, 5_000_000)) == 5_000_000


def test_a_zstd_body_that_hides_its_size_is_bounded_too() -> None:
    with pytest.raises(ProtocolError, match="more than 1000 bytes"):
        decompress(zstd_stream(bytes(5_000_000)), Compression.ZSTD, 1000)


@pytest.mark.parametrize("kind", KINDS)
def test_a_body_torn_anywhere_is_an_error(kind: Compression) -> None:
    whole = compress(BODY, kind)
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            decompress(whole[:size], kind)


@given(st.sampled_from(KINDS), st.binary(max_size=64), st.integers(0, 63))
def test_garbage_is_an_error_or_a_body_and_nothing_else(kind: Compression, noise: bytes, at: int) -> None:
    whole = compress(BODY[:500], kind)
    for body in (noise, whole[:at] + noise + whole[at + len(noise) :]):
        with suppress(ProtocolError):
            assert len(decompress(body, kind, 1000)) <= 1000


@pytest.mark.parametrize(
    ("kind", "library"), [(Compression.LZ4, "lz4.frame"), (Compression.ZSTD, "zstandard")], ids=["lz4", "zstd"]
)
def test_a_missing_library_is_named_with_its_remedy(
    kind: Compression, library: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, library, None)
    remedy = r"pip install 'bolide\[compression\]'"
    with pytest.raises(ClientError, match=remedy):
        compress(BODY, kind)
    with pytest.raises(ClientError, match=remedy):
        decompress(b"", kind)
    assert decompress(compress(BODY, Compression.ZLIB), Compression.ZLIB) == BODY
