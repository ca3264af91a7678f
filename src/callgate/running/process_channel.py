"""Frames over a socket: the protocol between the parent and its worker processes.

A frame is a token of 8 random bytes, its kind, the length of its payload, and the payload. The token is known to the two
ends only: whatever a tool writes to the descriptor by accident is noticed before anything of it is unpickled. It is no
defence against a hostile tool, which owns the worker's memory.
"""

import socket
import struct
from enum import IntEnum
from typing import Final, NamedTuple

__all__ = ("MAX_PAYLOAD_BYTES", "Channel", "Frame", "GarbledError", "Kind")

# More than any tool's output should be, and far below what would exhaust the parent before its limits are looked at.
MAX_PAYLOAD_BYTES: Final = 1 << 30

_HEADER: Final = struct.Struct(">8sBQ")
_SMALL_BYTES: Final = 1 << 16
_LARGE_BYTES: Final = 1 << 20


class Kind(IntEnum):
    """Say what a frame is. The parent sends jobs only; a job's answer is the first frame from `RESULT` on."""

    JOB = 1
    TAKEN = 2
    STARTED = 3
    ITEM = 4
    PROGRESS = 5
    RESULT = 6
    COLLECTED = 7
    ERROR = 8
    EXIT = 9
    REFUSED = 10
    UNSENDABLE = 11


class Frame(NamedTuple):
    """Hold one message."""

    kind: Kind
    payload: bytes


class GarbledError(Exception):
    """Tell that the bytes on the socket are no frames."""


class Channel:
    """Send and receive frames over one end of a socket pair. One thread receives; senders take turns outside."""

    __slots__ = ("_buffer", "_token", "connection")

    def __init__(self, connection: socket.socket, token: bytes) -> None:
        self.connection = connection
        self._token = token
        self._buffer = bytearray()

    def header(self, kind: Kind, payload: bytes) -> bytes:
        """Give the bytes that go before `payload`."""
        return _HEADER.pack(self._token, kind, len(payload))

    def send(self, kind: Kind, payload: bytes = b"") -> None:
        """Send a frame and block until it is on its way.

        Raises:
            OSError: when the other end is gone.
        """
        if len(payload) < _SMALL_BYTES:
            self.connection.sendall(self.header(kind, payload) + payload)
        else:
            self.connection.sendall(self.header(kind, payload))
            self.connection.sendall(payload)

    def receive(self) -> Frame | None:
        """Block until a frame is complete and give it, or None when the other end is gone.

        Raises:
            GarbledError: when what came is no frame.
        """
        while (frame := self.take()) is None:
            if not self.fill():
                return None
        return frame

    def fill(self) -> bool:
        """Read once; tell whether the other end is still there.

        Raises:
            BlockingIOError: when nothing has come on a non-blocking socket.
        """
        try:
            chunk = self.connection.recv(_SMALL_BYTES if len(self._buffer) < _SMALL_BYTES else _LARGE_BYTES)
        except ConnectionError:
            return False
        self._buffer += chunk
        return bool(chunk)

    def take(self) -> Frame | None:
        """Give the next frame of what was read, or None while it is incomplete.

        Raises:
            GarbledError: when what was read is no frame.
        """
        if len(self._buffer) < _HEADER.size:
            return None
        token, kind, length = _HEADER.unpack_from(self._buffer)
        if token != self._token or not Kind.JOB <= kind <= Kind.UNSENDABLE:
            raise GarbledError("something else than the worker wrote to its connection")
        if length > MAX_PAYLOAD_BYTES:
            raise GarbledError(f"a message of {length} bytes is over the limit of {MAX_PAYLOAD_BYTES} bytes")
        return self._cut(Kind(kind), _HEADER.size + length)

    def _cut(self, kind: Kind, end: int) -> Frame | None:
        if len(self._buffer) < end:
            return None
        with memoryview(self._buffer) as view:
            payload = bytes(view[_HEADER.size : end])
        del self._buffer[:end]
        return Frame(kind, payload)
