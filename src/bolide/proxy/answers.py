"""What answers are made of: headers that are the same for everybody, and the little of protobuf written here."""

from urllib.parse import quote

from bolide.protocol.http2_headers import encode_headers

ANSWER_HEADERS = encode_headers((b":status", b"200"), (b"content-type", b"application/grpc"))
OK_TRAILERS = encode_headers((b"grpc-status", b"0"))
NO_CALL = b"This port speaks gRPC, RocketMQ's apache.rocketmq.v2.\n"
NO_CALL_HEADERS = encode_headers(
    (b":status", b"415"), (b"content-length", b"%d" % len(NO_CALL)), (b"content-type", b"text/plain")
)
_SMALL = [bytes((number,)) for number in range(0x80)]


def varint(number: int) -> bytes:
    """A number as protobuf writes it."""
    if number < 0x80:
        return _SMALL[number]
    octets = bytearray()
    while number > 0x7F:
        octets.append(number & 0x7F | 0x80)
        number >>= 7
    octets.append(number)
    return bytes(octets)


def encode_trailers(status: int, text: str) -> bytes:
    """How a call ended that did not end well."""
    return encode_headers((b"grpc-status", b"%d" % status), (b"grpc-message", encode_text(text)))


def encode_text(text: str) -> bytes:
    """`grpc-message`: a header has room for a line of ASCII."""
    return quote(text[:1024], safe=" !\"#$&'()*+,-./:;<=>?@[\\]^_`{|}~").encode("ascii")
