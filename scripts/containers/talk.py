"""`python -m scripts.containers.talk WAY URL CERTIFICATE KEYS`: ask one spoken question, and check the spoken answer.

WAY is ``wss``, or for a WebRTC call ``udp`` or ``tcp`` (TURN over that transport) or ``direct`` (no TURN).
"""

from __future__ import annotations

import asyncio
import json
import ssl
import sys
import urllib.request
from collections.abc import AsyncGenerator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from aiortc import RTCIceServer

from app.access.api_keys import read_keys
from app.client import Client, ClientError, connect
from app.client.webrtc import opened
from app.media.audio import decode_audio
from engine.audio.resampler import resample
from scripts.containers.machine import ROOT

QUESTION = ROOT / "tests" / "data" / "spoken" / "in_001.ogg"
LEAST_S = 0.5
"""Shortest audio, in seconds, that counts as an answer."""


def main(arguments: Sequence[str]) -> int:
    """Return 1, after printing the reason, if there is no spoken answer."""
    way, url, certificate, keys = arguments
    trust, key = ssl.create_default_context(cafile=certificate), read_keys(keys)[0].value
    try:
        print(asyncio.run(talked(way, url, trust, key)))
    except ClientError as error:
        print(f"no answer: {error}")
        return 1
    return 0


async def talked(way: str, url: str, trust: ssl.SSLContext, key: str) -> str:
    """Ask by voice, and return a description of the answer. Raises ClientError."""
    voice = resample(decode_audio(QUESTION.read_bytes(), limit_s=30), 16_000, 24_000)
    async with channel(way, url, trust, key) as client:
        await client.speak(voice)
        client.speech_ended()
        answer = await client.answer()
    seconds = len(answer.pcm) / 24_000
    if seconds < LEAST_S or not answer.pcm.any():
        raise ClientError(f"{seconds:.1f} s of audio, or silence, do not count as an answer: {answer.text!r}")
    return f"{seconds:.1f} s of speech after {1000 * (answer.ttfa_s or 0):.0f} ms: {answer.text}"


def channel(way: str, url: str, trust: ssl.SSLContext, key: str) -> AbstractAsyncContextManager[Client]:
    if way == "wss":
        return connect(url, key=key, trust=trust)
    return called(url, trust, key, [] if way == "direct" else turn_servers(way, url, trust, key))


def turn_servers(way: str, url: str, trust: ssl.SSLContext, key: str) -> list[RTCIceServer]:
    """Return the TURN servers that Parley offers its clients, limited to one transport."""
    asking = urllib.request.Request(f"{url}/v1/realtime/ice-servers", headers={"Authorization": f"Bearer {key}"})
    with urllib.request.urlopen(asking, context=trust, timeout=10) as answer:
        found = json.load(answer)["ice_servers"]
    return [
        RTCIceServer([one for one in server["urls"] if one.endswith(way)], server["username"], server["credential"])
        for server in found
    ]


@asynccontextmanager
async def called(url: str, trust: ssl.SSLContext, key: str, ice_servers: list[RTCIceServer]) -> AsyncGenerator[Client]:
    """Keep a call open while the block lasts. Raises ClientError."""
    async with opened(url, "", key, trust, ice_servers=ice_servers) as line, Client(line, (), "auto") as client:
        yield client


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
