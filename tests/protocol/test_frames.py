"""The frame reader: any cut of the stream gives the same frames, and memory follows bytes, never claims."""

import pytest
from hypothesis import given
from hypothesis.strategies import binary, integers, lists, sampled_from

from bolide.errors import ProtocolError
from bolide.protocol.command import Command, read_commands
from bolide.protocol.frames import HEADER_SIZE_MAX, READ_SIZE, FrameReader, stranger

# A frame is a header word and what it announces; here the codec is JSON and the header empty.
HEADER_WORD = bytes(4)


def on_the_wire(*contents: bytes) -> bytes:
    return b"".join((4 + len(content)).to_bytes(4, "big") + HEADER_WORD + content for content in contents)


def feed_in_pieces(reader: FrameReader, stream: bytes, size: int) -> list[bytes]:
    return [frame[4:] for at in range(0, len(stream), size) for frame in reader.feed(stream[at : at + size])]


@given(contents=lists(binary(max_size=40)), cut=integers(1, 9))
def test_frames_survive_any_cut_of_the_stream(contents: list[bytes], cut: int) -> None:
    reader = FrameReader(frame_size_max=64)
    assert feed_in_pieces(reader, on_the_wire(*contents), cut) == contents
    assert reader.held_size == 0


@given(sizes=lists(integers(0, 9_000), max_size=12), cut=integers(1, 5_000), read_size=integers(512, 2_000))
def test_frames_larger_than_a_read_survive_any_cut(sizes: list[int], cut: int, read_size: int) -> None:
    contents = [bytes([i + 1]) * size for i, size in enumerate(sizes)]
    reader = FrameReader(frame_size_max=9_008, read_size=read_size)
    assert feed_in_pieces(reader, on_the_wire(*contents), cut) == contents
    assert reader.capacity == 0


@given(
    contents=lists(binary(max_size=40)), bad=sampled_from([b"\x00\x00\x00\x03", b"\xff" * 8, b"\x00\x00\x00\x08\x07"])
)
def test_frames_before_a_bad_one_are_still_read(contents: list[bytes], bad: bytes) -> None:
    reader = FrameReader(frame_size_max=64)
    found: list[bytes] = []
    with pytest.raises(ProtocolError):
        found.extend(frame[4:] for frame in reader.feed(on_the_wire(*contents) + bad + b"more" * 100))
    assert found == contents
    assert reader.capacity == 0


def test_a_broken_stream_stays_broken() -> None:
    reader = FrameReader()
    with pytest.raises(ProtocolError):
        list(reader.feed(b"\xff" * 8))
    with pytest.raises(ProtocolError):
        list(reader.feed(on_the_wire(b"good")))


@given(stream=binary(max_size=600), cut=integers(1, 60))
def test_no_bytes_make_the_reader_raise_anything_but_a_protocol_error(stream: bytes, cut: int) -> None:
    reader = FrameReader(frame_size_max=1 << 20, read_size=512)
    try:
        for at in range(0, len(stream), cut):
            list(reader.feed(stream[at : at + cut]))
    except ProtocolError:
        assert reader.problem
    assert reader.capacity <= 4 * 600 + 2 * 512


def test_a_length_field_takes_no_memory() -> None:
    reader = FrameReader()
    assert list(reader.feed((1 << 23).to_bytes(4, "big") + HEADER_WORD + b"only a little")) == []
    assert reader.capacity == READ_SIZE
    reader.shrink()
    assert reader.capacity == reader.held_size == 8 + len(b"only a little")


def test_a_false_length_is_refused_before_its_bytes_come() -> None:
    reader = FrameReader()
    with pytest.raises(ProtocolError, match="16777213 bytes long"):
        list(reader.feed((16 * 1024 * 1024 - 3).to_bytes(4, "big")))


def test_the_limit_counts_the_length_bytes_too() -> None:
    assert len(next(FrameReader(frame_size_max=64).feed(on_the_wire(bytes(56))))) == 60
    with pytest.raises(ProtocolError):
        list(FrameReader(frame_size_max=64).feed(on_the_wire(bytes(57))))


def test_a_frame_of_many_megabytes_is_not_copied_again_while_it_comes() -> None:
    reader, size = FrameReader(), 15 << 20
    stream = memoryview(on_the_wire(bytes(size)))[:-1]
    buffers = {}
    for at in range(0, len(stream), 40_000):
        assert list(reader.feed(stream[at : at + 40_000])) == []
        buffers[id(reader.stream.obj)] = reader.stream.obj  # kept, so that no other has its number
        assert reader.capacity <= max(2 * READ_SIZE, 4 * reader.held_size)
    assert len(buffers) <= 8
    assert [len(frame) for frame in reader.feed(b"\0")] == [size + 4]
    assert reader.capacity == 0


@given(size=integers(READ_SIZE, 2_000_000), cut=integers(1_000, 60_000))
def test_the_buffer_grows_with_the_bytes_that_came_and_shrinks_after(size: int, cut: int) -> None:
    reader = FrameReader()
    stream = on_the_wire(bytes(size)) + on_the_wire(b"next")[:-1]
    frames = 0
    for at in range(0, len(stream), cut):
        frames += len(list(reader.feed(stream[at : at + cut])))
        assert reader.capacity <= max(2 * READ_SIZE, 4 * (at + cut))
    assert frames == 1
    assert reader.capacity == READ_SIZE


def test_a_read_is_bounded_and_inside_a_large_frame_ends_with_it() -> None:
    reader = FrameReader()
    assert len(reader.window()) == READ_SIZE
    stream = memoryview(on_the_wire(bytes(100_000)) + on_the_wire(b"small") * 9_000)
    while stream:
        window = reader.window()
        size = min(len(window), len(stream))
        window[:size] = stream[:size]
        stream = stream[size:]
        bounds = reader.cut(size)
        assert len(bounds) // 2 <= READ_SIZE // len(on_the_wire(b"small")) + 1
        reader.settle()


def test_readers_with_common_spares_pass_buffers_around_and_never_share_one() -> None:
    spare: list[memoryview] = []
    first, second = FrameReader(spare=spare), FrameReader(spare=spare)
    list(first.feed(on_the_wire(b"whole")))
    assert (len(spare), first.capacity) == (1, 0)
    assert list(first.feed(on_the_wire(b"one")[:-1])) == []
    assert list(second.feed(on_the_wire(b"two")[:-1])) == []
    assert [frame[4:] for frame in first.feed(b"e")] == [b"one"]
    assert [frame[4:] for frame in second.feed(b"o")] == [b"two"]
    assert len(spare) == 2
    windows = first.window(), second.window()
    windows[0][:1], windows[1][:1] = b"1", b"2"
    assert (bytes(windows[0][:1]), bytes(windows[1][:1])) == (b"1", b"2")


@given(held_size=integers(1, READ_SIZE // 2), cut=integers(1, 20_000))
def test_a_beginning_shrinks_to_its_own_size_and_the_frame_comes_whole_all_the_same(held_size: int, cut: int) -> None:
    reader = FrameReader()
    frame = on_the_wire(bytes(range(256)) * 300)
    list(reader.feed(on_the_wire(b"whole") + frame[:held_size]))
    reader.shrink()
    assert reader.held_size == held_size
    assert reader.capacity == (held_size if held_size < READ_SIZE // 4 else READ_SIZE)
    frames: list[bytes] = []
    for at in range(held_size, len(frame), cut):
        frames += reader.feed(frame[at : at + cut])
        reader.shrink()
    assert [whole[4:] for whole in frames] == [bytes(range(256)) * 300]
    assert reader.capacity == 0


def with_header(size: int, body: bytes = b"") -> bytes:
    return (4 + size + len(body)).to_bytes(4, "big") + size.to_bytes(4, "big") + bytes(size) + body


def test_a_header_beyond_its_bound_is_refused_before_it_has_come() -> None:
    reader = FrameReader()
    frames = reader.feed(on_the_wire(b"before") + with_header(HEADER_SIZE_MAX + 1)[:READ_SIZE])
    assert next(frames)[4:] == b"before"
    with pytest.raises(ProtocolError, match="a header of 131073 bytes, the limit is 131072"):
        next(frames)
    assert reader.capacity == 0


@pytest.mark.parametrize("read_size", [READ_SIZE, 1 << 20])
@pytest.mark.parametrize("cut", [1 << 22, 60_000, 7])
def test_the_largest_header_passes_and_one_byte_more_does_not(read_size: int, cut: int) -> None:
    def fed(stream: bytes) -> list[bytes]:
        reader = FrameReader(read_size=read_size)
        return [frame for at in range(0, len(stream), cut) for frame in reader.feed(stream[at : at + cut])]

    assert len(fed(with_header(HEADER_SIZE_MAX, b"body"))[0]) == 4 + HEADER_SIZE_MAX + 4
    assert len(fed(with_header(4, bytes(1 << 20)))) == 1
    with pytest.raises(ProtocolError, match="a header of"):
        fed(with_header(HEADER_SIZE_MAX + 1, b"body"))


def test_a_stream_that_ends_gives_its_buffer_back() -> None:
    spare: list[memoryview] = []
    reader = FrameReader(spare=spare)
    list(reader.feed(on_the_wire(b"one")[:-1]))
    reader.close()
    assert (len(spare), reader.capacity, reader.held_size) == (1, 0, 0)
    reader.close()
    assert len(spare) == 1


def test_bounds_and_stream_give_the_commands_of_one_read() -> None:
    reader = FrameReader()
    commands = [Command(105, opaque=n, fields={"topic": f"T{n}"}, body=b"b" * n) for n in range(3)]
    stream = b"".join(command.encode() for command in commands)
    window = reader.window()
    window[: len(stream)] = stream
    assert read_commands(reader.stream, reader.cut(len(stream))) == commands


@pytest.mark.parametrize(
    ("head", "name"),
    [
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2 preface"),
        (b"GET / HTTP/1.1\r\n", "HTTP request"),
        (b"POST /x HTTP/1.1\r\n", "HTTP request"),
        (b"\x16\x03\x01\x02\x00", "TLS handshake"),
        (b"SSH-2.0-x\r\n", "SSH"),
    ],
)
def test_another_protocol_is_called_by_its_name(head: bytes, name: str) -> None:
    with pytest.raises(ProtocolError, match=name):
        list(FrameReader().feed(head))


def test_a_frame_is_nobody_elses_protocol() -> None:
    assert stranger(on_the_wire(b"{}")[:4]) is None


@given(held=integers(1, READ_SIZE - 1), size=integers(1, READ_SIZE // 4))
def test_what_came_aside_fits_into_the_next_window(held: int, size: int) -> None:
    reader = FrameReader()
    frame = on_the_wire(bytes(2 * READ_SIZE))
    reader.window()[:held] = frame[:held]
    assert reader.cut(held) == []
    reader.settle()
    aside = reader.aside()[:size]
    aside[:] = frame[held : held + size]
    reader.window()[: len(aside)] = aside
    assert reader.cut(len(aside)) == []
    reader.settle()
    assert list(reader.feed(frame[held + len(aside) :])) == [frame[4:]]
