"""What one message may cost the others: pictures, lists, texts, names, all small to send; each with its control."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
import zlib
from pathlib import Path
from typing import Any

import httpx
import pytest
from websockets.asyncio.client import connect

from tests.attacks.target import DECODES_HERE, Target, attacked

pytestmark = pytest.mark.attacks

LONGEST_MS, MOST_MB = 100, 300
UNWEIGHED = "from app.realtime.conversation import raw_items; raw_items._size = lambda weighed: 0\n"
UNCOUNTED = "from app import strict_json; strict_json._check_values = lambda text: None\n"
READER = """
import runpy, sys
from engine.worker.models.nano import thinker
thinker.check_length = lambda messages, most: None
sys.argv[0] = "engine.worker"
runpy.run_module("engine.worker", run_name="__main__")
"""
READ = (  # at neither door: the server's nor the worker's
    "from app.http import question; question.check_texts = lambda *texts, **sizes: None\n"
    f"import engine.ipc.spawn as spawn; spawn.worker = lambda python=None: (*spawn.PYTHON, '-c', {READER!r})\n"
)
WHOLE_FILES = "from app.media import images; images._only_picture = lambda image: image.data\n"
UNCOUNTED_NAMES = (
    "from app.realtime import item_edits\n"
    "from app.realtime.conversation import conversation\n"
    "from app.realtime.output import request_builder\n"
    "from app.realtime.protocol import wire_items\n"
    "conversation.size_of = lambda item: 0\n"
    "item_edits.check_items = lambda items, model, param: None\n"
    "request_builder.check_items = lambda items, model, param: None\n"
    "wire_items._MAX_NAME = 1 << 30\n"
)


def chunk(kind: bytes, body: bytes) -> bytes:
    return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))


def deflated(size: int) -> bytes:
    """So many zeros, a thousandth of it."""
    deflate, block = zlib.compressobj(9), bytes(1 << 20)
    return b"".join(deflate.compress(block) for _ in range(size >> 20)) + deflate.flush()


def picture(width: int, height: int, more: bytes = b"") -> str:
    """A black PNG of one bit a pixel, as a data URI."""
    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 1, 0, 0, 0, 0))
    rows = zlib.compress(bytes((1 + (width + 7) // 8) * height), 9)
    png = b"\x89PNG\r\n\x1a\n" + header + more + chunk(b"IDAT", rows) + chunk(b"IEND", b"")
    return "data:image/png;base64," + base64.b64encode(png).decode()


def showing(url: str, times: int = 1) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": url}] * times}


def asking(*items: Any) -> str:
    response = {"conversation": "none", "output_modalities": ["text"], "input": items}
    return json.dumps({"type": "response.create", "response": response})


async def told(aim: Target, *texts: str) -> list[str]:
    """Send each, and wait for what comes of it: the error's code, or the type of the event that ends it."""
    ends = []
    async with connect(aim.ws, max_size=None, compression=None, ping_interval=None) as socket:
        await socket.recv()
        for text in texts:
            await socket.send(text)
            async with asyncio.timeout(60):
                while True:
                    event = json.loads(await socket.recv())
                    if event["type"] in ("error", "conversation.item.done", "response.done"):
                        ends.append(event.get("error", {}).get("code") or event["type"])
                        break
    return ends


async def posted(aim: Target, body: bytes) -> tuple[int, str]:
    async with httpx.AsyncClient(base_url=aim.http, timeout=120) as http:
        answer = await http.post("/v1/chat/completions", content=body, headers={"content-type": "application/json"})
    return answer.status_code, answer.json().get("error", {}).get("code", "")


def chat(**more: Any) -> bytes:
    return json.dumps({"model": "nano", "messages": [{"role": "user", "content": "hi"}], **more}).encode()


PICTURES = asking(*[showing(picture(4000, 4000), 40)] * 3)


async def test_pictures_that_are_small_to_send(tmp_path: Path) -> None:
    """331 kB of message had taken 5.9 GB, and the worker."""
    async with attacked(tmp_path, asks=True) as (aim, bystander, peak):
        one = json.dumps({"type": "conversation.item.create", "item": showing(picture(4000, 4000), 64)})
        assert await told(aim, PICTURES, one, asking(showing(picture(4000, 4000)))) == [
            "invalid_value",
            "conversation_full",
            "response.done",
        ]
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms <= LONGEST_MS
    assert peak.grown_mb <= MOST_MB


async def test_pictures_that_are_small_to_send_fill_the_memory_where_they_are_not_weighed(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=UNWEIGHED) as (aim, _, peak):
        few = asking(*[showing(picture(4000, 4000), 4)] * 3)
        await told(aim, few)
    assert peak.grown_mb > MOST_MB


async def test_a_text_in_a_picture(tmp_path: Path) -> None:
    """Of 300 kB, which a decoder inflates to 300 MB, and doubles."""
    note = chunk(b"zTXt", b"note\x00\x00" + deflated(300 << 20))
    async with attacked(tmp_path) as (aim, bystander, peak):
        item = json.dumps({"type": "conversation.item.create", "item": showing(picture(8, 8, note), 3)})
        assert await told(aim, item) == ["conversation.item.done"]
    assert bystander.waits.longest_ms <= LONGEST_MS
    assert peak.grown_mb <= MOST_MB


async def test_a_text_in_a_picture_fills_the_memory_where_it_is_read(tmp_path: Path) -> None:
    note = chunk(b"zTXt", b"note\x00\x00" + deflated(300 << 20))
    async with attacked(tmp_path, before=DECODES_HERE + WHOLE_FILES) as (aim, _, peak):
        await told(aim, json.dumps({"type": "conversation.item.create", "item": showing(picture(8, 8, note), 3)}))
    assert peak.grown_mb > MOST_MB


LISTS = '{"type":"x","a":[' + "[]," * 5_000_000 + "[]]}"
MODALITIES = chat()[:-1] + b',"modalities":[' + b"0," * 4_000_000 + b"0]}"


async def test_lists_without_end(tmp_path: Path) -> None:
    """8 MB of modalities had stopped everybody for half a minute, and taken 6.9 GB."""
    async with attacked(tmp_path, asks=True) as (aim, bystander, peak):
        fields = '{"type":"session.update","session":{' + ",".join(f'"f{n}":1' for n in range(1_000_000)) + "}}"
        assert await told(aim, LISTS, fields) == ["invalid_json"] * 2
        assert await posted(aim, MODALITIES) == (400, "invalid_json")
        ignored = chat()[:-1] + b',"x":[' + b"[]," * 10_000_000 + b"[]]}"
        assert await posted(aim, ignored) == (400, "invalid_json")
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms <= LONGEST_MS
    assert peak.grown_mb <= MOST_MB


async def test_lists_without_end_stop_everybody_where_they_are_not_counted(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=UNCOUNTED) as (aim, bystander, _):
        await told(aim, LISTS)
    assert bystander.waits.longest_ms > 5 * LONGEST_MS


LOST = "is stopped: "  # of a worker, in the log
LONG = chat(messages=[{"role": "user", "content": "hello there " * 700_000}])


async def test_a_text_that_no_context_holds(tmp_path: Path) -> None:
    """8 MB had cost the worker, and all who were served by it."""
    async with attacked(tmp_path, asks=True) as (aim, bystander, peak):
        assert await posted(aim, LONG) == (400, "context_length_exceeded")
        text = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "hello " * 2_000_000}]}
        assert await told(aim, asking(text)) == ["context_length_exceeded"]
        instructions = {"instructions": "Be kind. " * 11_000, "type": "realtime"}
        async with connect(aim.ws) as socket:
            await socket.recv()
            await socket.send(json.dumps({"type": "session.update", "session": instructions}))
            assert json.loads(await socket.recv())["type"] == "session.updated"
        assert LOST not in aim.log
    assert bystander.waits.broken is None
    assert bystander.waits.longest_ms <= LONGEST_MS
    assert peak.grown_mb <= MOST_MB


async def test_a_text_that_no_context_holds_costs_everybody_s_worker_where_it_is_read(tmp_path: Path) -> None:
    async with attacked(tmp_path, before=READ, asks=True) as (aim, _, _):
        assert await posted(aim, LONG) == (500, "replica_lost")
        assert LOST in aim.log


def naming(n: int, size: int) -> str:
    item = {"type": "function_call", "name": "n" * size, "arguments": "{}", "call_id": f"c{n}"}
    return json.dumps({"type": "conversation.item.create", "item": item})


SMALL = {"limits": {"conversation_mb": 2}}


async def test_names_that_are_longer_than_names(tmp_path: Path) -> None:
    """20 of a megabyte in one conversation, which holds two."""
    async with attacked(tmp_path, SMALL) as (aim, bystander, peak):
        assert await told(aim, *[naming(n, 1_000_000) for n in range(20)]) == ["invalid_value"] * 20
    assert bystander.waits.longest_ms <= LONGEST_MS
    assert peak.grown_mb <= MOST_MB


async def test_names_that_are_longer_than_names_are_held_where_nobody_counts(tmp_path: Path) -> None:
    async with attacked(tmp_path, SMALL, before=UNCOUNTED_NAMES) as (aim, _, _):
        assert await told(aim, *[naming(n, 1_000_000) for n in range(20)]) == ["conversation.item.done"] * 20
