"""Messages between a process and its helper, on a blocking socket.

A message is two lengths, a header in MessagePack, and bytes. Either may be empty.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

LENGTHS = struct.Struct("<IQ")
"""Bytes of the header, and bytes after it."""


def send(connection: socket.socket, header: bytes, pieces: Sequence[memoryview] = ()) -> None:
    """Send a message."""
    size = sum(piece.nbytes for piece in pieces)
    connection.sendall(LENGTHS.pack(len(header), size) + header)
    for piece in pieces:
        connection.sendall(piece)


def header(connection: socket.socket, most: int | None = None) -> tuple[bytearray, int] | None:
    """Return the header of the next message, and the number of bytes after it; None if the connection was closed.

    Raises EOFError if the message has more than ``most`` bytes.
    """
    lengths = received(connection, LENGTHS.size)
    if lengths is None:
        return None
    header_bytes, data_bytes = LENGTHS.unpack(lengths)
    if most is not None and header_bytes + data_bytes > most:
        raise EOFError
    found = received(connection, header_bytes)
    return None if found is None else (found, data_bytes)


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


def required(found: T | None) -> T:
    """Return what was received. Raises EOFError if the connection was closed before."""
    if found is None:
        raise EOFError
    return found
