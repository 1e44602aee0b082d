"""Bodies made smaller: zlib always, LZ4 and ZSTD where their libraries are installed.

The sysFlag says whether and how. Producers before 4.9.4 knew only zlib and set no type, so type 0 means zlib too; we
write the type. The compressed size says nothing about the real one, so reading has a limit: a few kilobytes from a
stranger must not become gigabytes here.
"""

import zlib
from collections.abc import Callable
from enum import IntEnum
from importlib import import_module
from typing import Any

from bolide.errors import ClientError, ProtocolError
from bolide.protocol import sysflags

LEVEL = 5  # Java's default for producers; LZ4 knows no such level
# No plain body can be larger, since a frame ends at 16 MiB; a compressed one need not be either.
BODY_SIZE_MAX = 16 * 1024 * 1024


class Compression(IntEnum):
    """The type bits of the sysFlag, as a number."""

    LZ4 = 1
    ZSTD = 2
    ZLIB = 3


def compression_of(sys_flag: int) -> Compression | None:
    """How the body is compressed; None when it is not."""
    if not sys_flag & sysflags.COMPRESSED:
        return None
    number = (sys_flag & sysflags.COMPRESSION_MASK) >> sysflags.COMPRESSION_SHIFT
    if number > Compression.ZLIB:
        raise ProtocolError(
            f"sysFlag {sys_flag:#x} names compression {number}, known are 0 and 3 (zlib), 1 (LZ4), 2 (ZSTD)"
        )
    return Compression(number or Compression.ZLIB)


def with_compression(sys_flag: int, compression: Compression) -> int:
    """The sysFlag of a body that has been compressed; 0x301 for zlib and nothing else."""
    return sys_flag & ~sysflags.COMPRESSION_MASK | compression << sysflags.COMPRESSION_SHIFT | sysflags.COMPRESSED


def compress(body: bytes, compression: Compression = Compression.ZLIB, level: int = LEVEL) -> bytes:
    return _COMPRESSORS[compression](body, level)


def decompress(body: bytes, compression: Compression, size_max: int = BODY_SIZE_MAX) -> bytes:
    """The body as it was; ProtocolError when it is torn, garbage or larger than size_max."""
    return _DECOMPRESSORS[compression](body, size_max)


def _zlib_compress(body: bytes, level: int) -> bytes:
    return zlib.compress(body, level)


def _zlib_decompress(body: bytes, size_max: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        plain = stream.decompress(body, size_max + 1)
    except zlib.error as problem:
        raise _unreadable(Compression.ZLIB, problem) from None
    return _checked(plain, stream.eof, Compression.ZLIB, size_max)


def _lz4_compress(body: bytes, level: int) -> bytes:
    lz4_frame = _library("lz4.frame", Compression.LZ4)
    return bytes(lz4_frame.compress(body))


def _lz4_decompress(body: bytes, size_max: int) -> bytes:
    lz4_frame = _library("lz4.frame", Compression.LZ4)
    stream = lz4_frame.LZ4FrameDecompressor()
    try:
        plain = bytes(stream.decompress(body, max_length=size_max + 1))
    except RuntimeError as problem:
        raise _unreadable(Compression.LZ4, problem) from None
    return _checked(plain, stream.eof, Compression.LZ4, size_max)


def _zstd_compress(body: bytes, level: int) -> bytes:
    zstandard = _library("zstandard", Compression.ZSTD)
    return bytes(zstandard.ZstdCompressor(level=level).compress(body))


def _zstd_decompress(body: bytes, size_max: int) -> bytes:
    zstandard = _library("zstandard", Compression.ZSTD)
    try:
        # max_output_size binds only frames that do not state their size; Java's do not, ours do.
        if zstandard.frame_content_size(body) > size_max:
            raise _too_large(Compression.ZSTD, size_max)
        return bytes(zstandard.ZstdDecompressor().decompress(body, max_output_size=size_max))
    except zstandard.ZstdError as problem:
        raise ProtocolError(f"a ZSTD body that is torn or holds more than {size_max} bytes: {problem}") from None


_COMPRESSORS: dict[Compression, Callable[[bytes, int], bytes]] = {
    Compression.LZ4: _lz4_compress,
    Compression.ZSTD: _zstd_compress,
    Compression.ZLIB: _zlib_compress,
}
_DECOMPRESSORS: dict[Compression, Callable[[bytes, int], bytes]] = {
    Compression.LZ4: _lz4_decompress,
    Compression.ZSTD: _zstd_decompress,
    Compression.ZLIB: _zlib_decompress,
}


def _checked(plain: bytes, at_end: bool, compression: Compression, size_max: int) -> bytes:
    if len(plain) > size_max:
        raise _too_large(compression, size_max)
    if not at_end:
        raise ProtocolError(f"a {compression.name} body that ends before its end")
    return plain


def _too_large(compression: Compression, size_max: int) -> ProtocolError:
    return ProtocolError(f"a {compression.name} body holds more than {size_max} bytes")


def _unreadable(compression: Compression, problem: Exception) -> ProtocolError:
    return ProtocolError(f"a body that is not {compression.name}: {problem}")


def _library(name: str, compression: Compression) -> Any:
    try:
        return import_module(name)
    except ImportError:
        raise ClientError(f"{compression.name} bodies need a library: pip install 'bolide[compression]'") from None
