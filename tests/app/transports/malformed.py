"""Requests that are almost right: four good ones, each with a few random wounds. The same seed makes the same."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator

HEAD = b"Host: 127.0.0.1\r\n"
JSON = b"Content-Type: application/json\r\n"
UPGRADE = (
    b"GET /v1/realtime HTTP/1.1\r\n" + HEAD + b"Upgrade: websocket\r\nConnection: Upgrade\r\n"
    b"Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n"
    b"Sec-WebSocket-Protocol: realtime\r\n\r\n"
)
WHOLE = (
    b"GET /livez HTTP/1.1\r\n" + HEAD + b"\r\n",
    b"POST /v1/chat/completions?a=b HTTP/1.1\r\n" + HEAD + JSON + b"Content-Length: 2\r\n\r\n{}",
    b"POST /v1/audio/speech HTTP/1.1\r\n" + HEAD + JSON + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
    UPGRADE,
)
SPLINTERS = (
    b"\r\n", b"\n", b"\0", b" ", b":", b"%", b"%ff", b"%00", b"\xff\xfe", b"\xc3\xa9", b"?", b"#", b"//", b"/../",
    b"Content-Length: 5\r\n", b"Content-Length: -1\r\n", b"Content-Length: " + b"9" * 25 + b"\r\n",
    b"Transfer-Encoding: chunked\r\n", b"Transfer-Encoding: gzip\r\n", b"Host: evil.example\r\n", b"X" * 1000,
    b"X-Long: " + b"a" * 9000 + b"\r\n", b"X: \xe9\r\n", b"A: b\r\n" * 150, b" folded\r\n", b"Expect: 100-continue\r\n",
    b"Upgrade: h2c\r\n", b"Connection: close\r\n", b"Origin: http://[\r\n", b"Authorization: Bearer \xff\r\n",
    b"Sec-WebSocket-Extensions: permessage-deflate; server_max_window_bits=1\r\n", b"Sec-WebSocket-Protocol: \xe9\r\n",
    b"Sec-WebSocket-Protocol: openai-insecure-api-key.\xe9, realtime\r\n", b"Sec-WebSocket-Version: 7\r\n",
    b"X-Forwarded-For: \xff, 1\r\n", b"Cookie: \x80=\x81\r\n", b"OpenAI-Beta: \xe9\r\n",
)  # fmt: skip


def requests(seed: int, count: int) -> Iterator[bytes]:
    """So many of them, whole and halved, some with bytes above 127 where none belong."""
    chance = random.Random(seed)
    for _ in range(count):
        request = bytearray(chance.choice(WHOLE))
        for _ in range(chance.choice((1, 1, 2, 5))):
            request = _wounded(request, chance)
        yield bytes(request)


def _wounded(request: bytearray, chance: random.Random) -> bytearray:
    at = chance.randrange(len(request)) if request else 0
    line = request.rfind(b"\r\n", 0, at) + 2  # where a header begins: what is put there is a header of its own
    match chance.randrange(6):
        case 0:
            request[at : at + 1] = bytes([chance.randrange(256)])
        case 1:
            request[at:at] = chance.choice(SPLINTERS)
        case 2:
            request[line:line] = chance.choice(SPLINTERS)
        case 3:
            del request[at : at + chance.randrange(1, 10)]
        case 4:
            del request[at + 1 :]
        case _:
            request[at : at + 1] = request[at : at + 1] * 3
    return request


async def answer_to(port: int, request: bytes) -> bytes:
    """All that the server says to it until it closes, or until it speaks another protocol."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    answer = b""
    try:
        writer.write(request)
        while not answer.startswith(b"HTTP/1.1 101 ") and (piece := await reader.read(65536)):
            answer += piece
    except ConnectionError:
        pass  # it closed before it had read everything
    finally:
        writer.close()
    return answer
