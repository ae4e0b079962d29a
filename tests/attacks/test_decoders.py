"""Small files that cost a decoder much time or memory: no other picture or message waits, and no memory is taken."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import time
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import psutil
import pytest
from websockets.asyncio.client import connect

from tests.app.media.boxes import box, element, fragment, full_box, mp4, track
from tests.app.media.test_audio import wav
from tests.app.media.test_images import png
from tests.app.media.test_videos import video
from tests.app.rig import eventually
from tests.attacks.target import DECODES_HERE, Target, attacked, target

pytestmark = pytest.mark.attacks

LONGEST_MS = 100
MOST_MB = 100
PICTURE_S = 0.3
"""How much longer another user's picture may take than without the attack."""
MOST_TIMES = 1.5
"""How many times as long another user's recording and first sound may take."""
NOISE_S = 0.1
"""How much longer they may take on any machine that does other work."""
SAMPLES = 20_000_000
SOUND = wav(np.zeros(16_000, np.int16))

UNCHECKED = f"""{DECODES_HERE}
from app.media import images, opening
opening._CHECKS.clear()
images._MOST_COSTLY_MARKERS = 1 << 30
decoding.MOST_PROCESSES = 2
"""


def segment(marker: int, body: bytes) -> bytes:
    return b"\xff" + bytes([marker]) + struct.pack(">H", len(body) + 2) + body


def jpeg(repeated: bytes, side: int = 4000) -> bytes:
    """A progressive JPEG of one grey, followed by segments that change nothing."""
    blocks = (side // 8) ** 2
    frame = segment(0xC2, struct.pack(">BHHB", 8, side, side, 1) + b"\1\x11\0")
    tables = segment(0xDB, b"\0" + b"\1" * 64) + segment(0xC4, b"\0\1" + bytes(15) + b"\0")
    tables += segment(0xC4, b"\x10\1\1" + bytes(14) + b"\xe0\0")
    first = segment(0xDA, b"\1\1\0\0\0\0") + bytes(blocks // 8 + 1)
    return b"\xff\xd8" + tables + frame + first + repeated + b"\xff\xd9"


def scan(side: int = 4000) -> bytes:
    """A scan that skips all blocks in runs of 32767."""
    runs, left = "", (side // 8) ** 2
    while left >= 16384:
        length = min(left, 32767)
        runs += "0" + format(length - 16384, "014b")
        left -= length
    runs += "10" * left
    runs += "1" * (-len(runs) % 8)
    data = int(runs, 2).to_bytes(len(runs) // 8, "big").replace(b"\xff", b"\xff\0")
    return segment(0xDA, b"\1\1\0\1\x3f\x10") + data


def part(data: bytes, kind: str) -> dict[str, Any]:
    url = f"data:{kind};base64,{base64.b64encode(data).decode()}"
    name = "video" if kind.startswith("video") else "image"
    return {"type": f"input_{name}", f"{name}_url": url}


def item(data: bytes, kind: str) -> str:
    content = [part(data, kind)]
    return json.dumps(
        {"type": "conversation.item.create", "item": {"type": "message", "role": "user", "content": content}}
    )


async def shown(aim: Target, data: bytes, kind: str) -> str:
    """Send a picture or a video, and return how the server answers."""
    async with connect(aim.ws, max_size=None, compression=None, ping_interval=None) as socket:
        await socket.recv()
        await socket.send(item(data, kind))
        async with asyncio.timeout(120):
            while True:
                event = json.loads(await socket.recv())
                if event["type"] in ("error", "conversation.item.done"):
                    return event.get("error", {}).get("code") or event["type"]


async def transcribed(aim: Target, data: bytes) -> str:
    async with httpx.AsyncClient(base_url=aim.http, timeout=120) as http:
        answer = await http.post("/v1/audio/transcriptions", files={"file": ("a.m4a", data)}, data={"model": "nano"})
    return answer.json().get("error", {}).get("code", "")


async def picture_s(aim: Target) -> float:
    """Return how long another user's ordinary picture takes."""
    begun_s = time.perf_counter()
    assert await shown(aim, png(640, 480), "image/png") == "conversation.item.done"
    return time.perf_counter() - begun_s


async def recording_s(aim: Target) -> float:
    """Return how long another user's recording of a second takes."""
    begun_s = time.perf_counter()
    assert await transcribed(aim, SOUND) == ""
    return time.perf_counter() - begun_s


def may_take_s(alone_s: Sequence[float]) -> float:
    return MOST_TIMES * max(alone_s) + NOISE_S


Attack = Callable[[Target], Coroutine[Any, Any, object]]
ATTACKS: dict[str, Attack] = {
    "a JPEG of 17,000 scans": lambda aim: shown(aim, jpeg(scan() * 17_000), "image/jpeg"),
    "a JPEG of 30,000 Huffman tables": lambda aim: shown(
        aim, jpeg((segment(0xC4, b"\x10\1\1" + bytes(14) + b"\xe0\0")) * 30_000), "image/jpeg"
    ),
    "a JPEG of 30,000 frames": lambda aim: shown(
        aim, jpeg(segment(0xC2, struct.pack(">BHHB", 8, 4000, 4000, 1) + b"\1\x11\0") * 30_000), "image/jpeg"
    ),
    "an MP4 that announces 20 million samples": lambda aim: shown(aim, mp4(track(SAMPLES)), "video/mp4"),
    "the same as a recording": lambda aim: transcribed(aim, mp4(track(SAMPLES))),
    "an MP4 of thirty tracks": lambda aim: transcribed(aim, mp4(*[track(SAMPLES // 10)] * 30)),
    "an MP4 whose fragment announces samples": lambda aim: transcribed(aim, mp4(track(0), rest=fragment(SAMPLES))),
    "an MP4 whose edits repeat its samples": lambda aim: transcribed(aim, mp4(track(100_000, edits=300))),
    "an MP4 of chunks of 4 billion samples": lambda aim: transcribed(
        aim, mp4(track(1000, duration=1, in_chunk=2**32 - 1))
    ),
    "an MP4 with an index of 1.5 million fragments": lambda aim: transcribed(
        aim, mp4(*[track(1)] * 10, rest=full_box(b"sidx", struct.pack(">5I", 1, 1, 0, 0, 65535), bytes(18 << 20)))
    ),
    "a WebM of a million tags": lambda aim: transcribed(
        aim, element("1A45DFA3") + element("18538067", element("1254C367", bytes.fromhex("737380") * 4_000_000))
    ),
    "an MP4 of a million boxes": lambda aim: transcribed(aim, mp4(rest=box(b"free") * 1_000_000)),
}  # fmt: skip


@pytest.mark.parametrize("name", ATTACKS)
async def test_a_hostile_file(name: str, tmp_path: Path) -> None:
    async with attacked(tmp_path, listens=True) as (aim, bystander, peak):
        alone_s = min([await picture_s(aim) for _ in range(5)])
        recording_alone_s = [await recording_s(aim) for _ in range(5)]
        begun_s, before_mb = time.monotonic(), aim.grown_mb()  # the helper process of recordings is running by now
        attacks = [asyncio.create_task(ATTACKS[name](aim), name="attack") for _ in range(3)]
        waited_s, recordings_s = list[float](), list[float]()
        while not waited_s or not all(attack.done() for attack in attacks):
            waited_s.append(await picture_s(aim))
            recordings_s.append(await recording_s(aim))
        results = await asyncio.gather(*attacks)
        tracebacks = aim.tracebacks
    print(
        name,
        results,
        [round(one, 2) for one in waited_s],
        f"picture {alone_s:.2f} s, then {max(waited_s):.2f} s,",
        f"recording {max(recording_alone_s):.2f} s, then {max(recordings_s):.2f} s,",
        bystander.waits,
        f"{peak.grown_mb - before_mb:.0f} MB",
    )
    assert all(results), "each is refused"
    assert tracebacks == 0
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms <= LONGEST_MS
    assert max(waited_s) <= alone_s + PICTURE_S
    assert max(recordings_s) <= may_take_s(recording_alone_s)
    alone = [one for one in bystander.waits.spoken if one.asked_s < begun_s]
    beside = [one for one in bystander.waits.spoken if one.asked_s >= begun_s]
    assert all(one.first_sound_s <= may_take_s([other.first_sound_s for other in alone]) for one in beside)
    assert all(one.underruns <= max(other.underruns for other in alone) for one in beside), "none on an idle machine"
    assert peak.grown_mb - before_mb <= MOST_MB


async def test_an_mp4_takes_the_servers_memory_where_its_tables_are_not_counted(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=UNCHECKED) as (aim, _, peak):
        await transcribed(aim, mp4(track(SAMPLES)))
    assert peak.grown_mb > 3 * MOST_MB


async def test_a_jpeg_of_scans_holds_the_decoder_where_they_are_not_counted(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=UNCHECKED) as (aim, _, _):
        await picture_s(aim)
        begun_s = time.perf_counter()
        await shown(aim, jpeg(scan() * 5_000), "image/jpeg")
    assert time.perf_counter() - begun_s > 1.0


def decoders_of(aim: Target) -> list[psutil.Process]:
    return [one for one in aim.processes() if any("decoder_process" in word for word in command_of(one))]


def command_of(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:  # it has just ended
        return []


async def test_a_decoder_that_is_killed_costs_its_client_one_error(tmp_path: Path) -> None:
    """The next file finds another process, and none is left when the server is killed."""
    long = video(20.0)
    async with target(tmp_path) as aim:
        await picture_s(aim)
        at_rest = len(decoders_of(aim))
        watching = asyncio.create_task(shown(aim, long, "video/mp4"), name="attack")
        await eventually(lambda: len(decoders_of(aim)) > at_rest)  # one more starts when the job begins
        decoders = decoders_of(aim)
        for one in decoders:
            one.suspend()
        await asyncio.sleep(0.2)
        for one in decoders:
            one.kill()
        assert await watching == "invalid_value"
        await picture_s(aim)
        decoders = decoders_of(aim)
        assert decoders
        psutil.Process(aim.pid).kill()
        _, alive = psutil.wait_procs(decoders, timeout=5)
        assert not alive
