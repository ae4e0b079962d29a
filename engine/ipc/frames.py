"""Messages between a process and its helper, on a blocking socket.

A message is two lengths, a header in MessagePack, and bytes. Either may be empty.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence

LENGTHS = struct.Struct("<IQ")
"""Bytes of the header, and bytes after it."""


def send(connection: socket.socket, header: bytes, pieces: Sequence[memoryview] = ()) -> None:
    """Send a message."""
    size = sum(piece.nbytes for piece in pieces)
    connection.sendall(LENGTHS.pack(len(header), size) + header)
    for piece in pieces:
        connection.sendall(piece)


def received(connection: socket.socket, size: int) -> bytearray | None:
    """Return exactly ``size`` bytes; None if the connection was closed before."""
    data = bytearray(size)
    left = memoryview(data)
    while left.nbytes:
        count = connection.recv_into(left)
        if not count:
            return None
        left = left[count:]
    return data


def required(data: bytearray | None) -> bytearray:
    """Return received bytes. Raises EOFError if the connection was closed before."""
    if data is None:
        raise EOFError
    return data
