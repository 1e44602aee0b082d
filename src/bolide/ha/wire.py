"""What a link of replication reads from and writes to: a socket that does not block, or TLS over one.

A plain wire hands parts to the system as they are. TLS has to copy what it encrypts, one record at a time; what could
not be sent has to be given to it again, the very same bytes, so those stay at the front of what is left. It may also
have read more than it gave out, and no loop tells of that: a read goes on until the socket is empty or the buffer full.
"""

import socket
import ssl

Parts = list[bytes | memoryview]


class Wire:
    """A plain socket."""

    def __init__(self, end: socket.socket) -> None:
        self.end = end
        end.setblocking(False)
        end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    @property
    def binding(self) -> bytes:
        """What only the two ends of this very connection know of it; a plain one has nothing."""
        return b""

    def receive(self, size_max: int) -> bytes:
        """Some bytes, none at the end of the stream; BlockingIOError where there are none yet."""
        return self.end.recv(size_max)

    def receive_into(self, buffer: memoryview) -> int:
        """The same into a buffer; returns how many."""
        return self.end.recv_into(buffer)

    def put(self, parts: Parts) -> Parts:
        """Send as much as the system takes; returns the rest."""
        wanted_size = sum(map(len, parts))
        try:
            size = self.end.sendmsg(parts)
        except (BlockingIOError, InterruptedError):
            size = 0
        if size == wanted_size:
            return []
        rest: Parts = []
        for part in parts:
            if size < len(part):
                rest.append(memoryview(part)[size:])
            size = max(size - len(part), 0)
        return rest

    def close(self) -> None:
        self.end.close()


class TlsWire(Wire):
    """TLS whose handshake is done."""

    end: ssl.SSLSocket

    @property
    def binding(self) -> bytes:
        # The first Finished message of the handshake: it is made of every key and certificate that was exchanged, so a
        # stranger in the middle has another one with each side.
        return self.end.get_channel_binding("tls-unique") or b""

    def receive(self, size_max: int) -> bytes:
        buffer = bytearray(size_max)
        return bytes(buffer[: self.receive_into(memoryview(buffer))])

    def receive_into(self, buffer: memoryview) -> int:
        filled = 0
        while filled < len(buffer):
            try:
                size = self.end.recv_into(buffer[filled:])
            except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
                if not filled:
                    raise BlockingIOError from None
                break
            except (ssl.SSLZeroReturnError, ssl.SSLEOFError):
                break
            if not size:
                break
            filled += size
        return filled

    def put(self, parts: Parts) -> Parts:
        for number, part in enumerate(parts):
            view = memoryview(part)
            while view:
                try:
                    view = view[self.end.send(view) :]
                except (ssl.SSLWantWriteError, ssl.SSLWantReadError):
                    return [view, *parts[number + 1 :]]
        return []
