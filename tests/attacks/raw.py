"""WebSocket frames and connections as an attacker makes them: beforehand, so that he takes no processor meanwhile."""

from __future__ import annotations

import asyncio

TEXT, BINARY, CLOSE, PING, PONG, MORE = 1, 2, 8, 9, 10, 0
HANDSHAKE = (
    "GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n{more}\r\n"
)


def frame(opcode: int, payload: bytes = b"", *, whole: bool = True) -> bytes:
    """A client's frame (RFC 6455, 5.2), under a mask of zeros: its payload stands as it is."""
    size = len(payload)
    if size < 126:
        length = bytes([0x80 | size])
    elif size < 65536:
        length = b"\xfe" + size.to_bytes(2, "big")
    else:
        length = b"\xff" + size.to_bytes(8, "big")
    return bytes([0x80 * whole | opcode]) + length + bytes(4) + payload


async def upgraded(
    port: int, path: str = "/v1/realtime", **headers: str
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """A socket whose handshake is done. Raises ConnectionError with the server's answer if it refuses."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    more = "".join(f"{name.replace('_', '-')}: {value}\r\n" for name, value in headers.items())
    writer.write(HANDSHAKE.format(path=path, port=port, more=more).encode())
    answer = await reader.readuntil(b"\r\n\r\n")
    if b" 101 " not in answer[:40]:
        writer.close()
        raise ConnectionError(answer.decode("latin-1"))
    return reader, writer


async def pushed(writer: asyncio.StreamWriter, data: bytes, within_s: float) -> int:
    """Send without reading what comes back; the bytes that were taken in time (the rest is dropped with the socket)."""
    sent, block = 0, 65536
    try:
        async with asyncio.timeout(within_s):
            for at in range(0, len(data), block):
                writer.write(data[at : at + block])
                await writer.drain()
                sent = at + block
    except (TimeoutError, OSError):
        pass
    return min(sent, len(data))
