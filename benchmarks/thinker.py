"""A language model behind a URL, measured: what it adds to a first sound, and what a lost worker costs its answers.

    python -m benchmarks.thinker latency [--rounds N]
    python -m benchmarks.thinker kills [--times N] [--launcher local|ray]
    python -m benchmarks.thinker prepare [--rounds N] [--speech-s S]

latency  first sound behind the remote server's first token, over what nano's own thinker's first token takes to be
         heard, of the same words: answers of both in turn, p50 and p95
kills    kill -9 of the thinker's worker in mid-answer, with a server that answers differently every time: each answer
         is a beginning of one of the server's and ends with one error, or is whole; none is spliced, none hangs
prepare  first token behind the end of speech, of a conversation of 2000 tokens that llama.cpp's server has never seen,
         with and without its prompt being read while the user speaks; a random model of 113 million weights

The server is this script's own, in its process, and answers at once; for `prepare` it is llama.cpp's.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import signal
import statistics
import sys
import time
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from rich.console import Console

from engine import (
    IN_WRITING,
    Audio,
    Engine,
    EngineError,
    EngineSpec,
    Message,
    Request,
    Speech,
    StageSpec,
    Text,
    TextPart,
    Usage,
    WorkerSpec,
)
from engine.config import ChunkSpec, ClusterSpec
from engine.errors import ReplicaLost, StageFailed
from tests.conformance import tiny_llm

QUESTION = "Spell the word morning."
BEHIND_MS = 20.0
HANGS_S = 30.0
A_FLEET = 20  # kills of one fleet: a place that is lost again and again is filled later and later
print_ = Console(width=120, highlight=False).print


@dataclass(slots=True)
class Server:
    """Answers each request by the next of its texts, a word an event, and notes when the first was sent."""

    texts: AsyncGenerator[list[str]]
    pause_s: float = 0.0
    port: int = 0
    first_s: float = 0.0
    given: list[list[str]] = field(default_factory=list[list[str]])

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                sizes = [line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
                if sizes:
                    await reader.readexactly(int(sizes[0].split(b":")[1]))
                if b"/models" in head.split(b"\r\n")[0]:
                    body = b'{"data": []}'
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % len(body) + body)
                else:
                    await self._answer(writer)
                await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the client is gone
        finally:
            writer.close()

    async def _answer(self, writer: asyncio.StreamWriter) -> None:
        words = await anext(self.texts)
        self.given.append(words)
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for n, word in enumerate(words):
            if not n:
                self.first_s = time.monotonic()
            writer.write(_chunk({"choices": [{"index": 0, "delta": {"content": word}}]}))
            if self.pause_s:
                await writer.drain()
                await asyncio.sleep(self.pause_s)
        writer.write(_chunk({"choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}))
        writer.write(b"e\r\ndata: [DONE]\n\n\r\n0\r\n\r\n")


def _chunk(event: dict[str, Any]) -> bytes:
    data = f"data: {json.dumps(event)}\n\n".encode()
    return b"%x\r\n%b\r\n" % (len(data), data)


@asynccontextmanager
async def serving(texts: AsyncGenerator[list[str]], pause_s: float = 0.0) -> AsyncGenerator[Server]:
    server = Server(texts, pause_s)
    listener = await asyncio.start_server(server.serve, "127.0.0.1", 0)
    server.port = listener.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listener.close()


def spec(voice: str, server: Server | None, apart: bool = False, **fields: Any) -> EngineSpec:
    """A family's voice behind the server's words, or behind its own thinker's."""
    options = {} if server is None else {"url": f"http://127.0.0.1:{server.port}/v1", "model": "m"}
    stages = (
        StageSpec(use=f"{voice}.thinker" if server is None else "llm.openai", name="thinker", options=options),
        StageSpec(use=f"{voice}.talker", name="talker"),
        StageSpec(use=f"{voice}.code2wav", name="code2wav"),
    )
    together = [WorkerSpec(stages=("thinker", "talker", "code2wav"))]
    alone = [WorkerSpec(stages=("thinker",)), WorkerSpec(stages=("talker", "code2wav"))]
    chunks = ChunkSpec(first=1, growth=1.5, steady=12)
    return EngineSpec(stages=stages, workers=tuple(alone if apart else together), chunks=chunks, **fields)


def asked(id: str, text: str = QUESTION) -> Request:
    return Request(id=id, session=id, messages=(Message("user", (TextPart(text),)),))


async def latency(rounds: int) -> bool:
    async def same(words: list[str]) -> AsyncGenerator[list[str]]:
        while True:
            yield words

    async with Engine(spec("nano", None)) as own:
        words = [chunk.text for chunk in await _whole(own, asked("words")) if isinstance(chunk, Text)]
        async with serving(same(words)) as server, Engine(spec("nano", server)) as remote:
            ours: list[float] = []
            theirs: list[float] = []
            for n in range(rounds):
                ours.append(await _behind(own, f"own{n}", None))
                theirs.append(await _behind(remote, f"remote{n}", server))
    ours, theirs = ours[5:], theirs[5:]
    over = statistics.median(theirs) - statistics.median(ours)
    print_(f"{len(ours)} answers each, of {len(words)} pieces: {''.join(words)!r}")
    for name, found in (("nano's own thinker", ours), ("llm.openai", theirs)):
        p95 = sorted(found)[int(0.95 * len(found))]
        print_(f"first token -> first sound, {name:18}  p50 {statistics.median(found):5.1f} ms   p95 {p95:5.1f} ms")
    print_(f"over nano's own, p50: {over:.1f} ms (bar {BEHIND_MS:g})")
    return over <= BEHIND_MS


async def _behind(engine: Engine, id: str, server: Server | None) -> float:
    """ms from the first token, at the server that makes it, to the first sound."""
    async with engine.open(asked(id)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Audio):
                break
        first_s = chunks.timeline.marks["thinker.out"] if server is None else server.first_s
        return (chunks.timeline.marks["audio"] - first_s) * 1000


async def _whole(engine: Engine, request: Request) -> list[Any]:
    async with engine.open(request) as chunks:
        return [chunk async for chunk in chunks]


@dataclass(slots=True)
class Count:
    whole: int = 0
    ended: int = 0
    """Answers that ended with one error, behind a beginning of one of the server's answers."""
    wrong: list[str] = field(default_factory=list[str])


async def kills(times: int, launcher: str) -> bool:
    async def numbered() -> AsyncGenerator[list[str]]:
        n = 0
        while True:
            n += 1
            yield [f"a{n}w{word} " for word in range(40)]

    found, draw = Count(), random.Random(7)
    with ray_cluster() if launcher == "ray" else nullcontext(None) as address:
        for done in range(0, times, A_FLEET):
            async with serving(numbered(), 0.02) as server:
                whole = spec(
                    "script", server, apart=True, launcher=launcher, empty_s=30.0, cluster=ClusterSpec(address=address)
                )
                async with Engine(whole) as engine:
                    for n in range(done, min(times, done + A_FLEET)):
                        await _killed(engine, server, f"k{n}", draw.uniform(0.0, 0.7), found)
    print_(
        f"{times} kills ({launcher}): {found.ended} answers ended with one error behind a beginning of one answer, "
        f"{found.whole} were whole, {len(found.wrong)} wrong"
    )
    for one in found.wrong:
        print_(f"  {one}")
    return not found.wrong


HISTORY = 2000
SOONER = 3.0


def whole_conversation(name: str) -> tuple[Message, ...]:
    """Return about HISTORY tokens that no other conversation begins with."""
    said = [f"{name} {n} tell me about the months of the year and the days of the week please" for n in range(74)]
    return tuple(Message("assistant" if n % 2 else "user", (TextPart(text),)) for n, text in enumerate(said))


async def speech(seconds: float) -> AsyncGenerator[Speech]:
    """Yield speech as it is spoken."""
    for _ in range(round(seconds / 0.02)):
        yield Speech(np.zeros(320, np.int16))
        await asyncio.sleep(0.02)


async def prepare(rounds: int, speech_s: float) -> bool:
    found: dict[bool, list[tuple[float, Usage]]] = {False: [], True: []}
    with tiny_llm.served(tiny_llm.random_file(), 2, 4096, max(1, (os.cpu_count() or 1) - 1)) as url:
        for n in range(rounds):
            for ahead in found:
                options = {"url": url, "model": "tiny", "prepare": ahead, "context": 8192, "first_token_s": 300.0}
                stages = (
                    StageSpec(use="script.ears", name="ears"),
                    StageSpec(use="llm.openai", name="thinker", options=options),
                )
                async with Engine(EngineSpec(stages=stages, stall_s=300.0)) as engine:
                    found[ahead].append(await _first_token(engine, f"{n} {ahead}", speech_s))
    for ahead, name in ((False, "when the turn is over"), (True, "while the user speaks")):
        times = [ms for ms, _ in found[ahead]]
        usage = found[ahead][-1][1]
        print_(
            f"prompt read {name:22} first token p50 {statistics.median(times):7.0f} ms   "
            f"({usage.cached_tokens} of {usage.input_tokens} tokens were read before)"
        )
    ratio = statistics.median([ms for ms, _ in found[False]]) / statistics.median([ms for ms, _ in found[True]])
    print_(f"sooner: {ratio:.1f} x (bar {SOONER:g} x), {rounds} conversations each, {speech_s:g} s of speech")
    cold = all(usage.cached_tokens < 100 and usage.input_tokens > HISTORY for _, usage in found[False])
    warm = all(usage.cached_tokens > 0.9 * HISTORY for _, usage in found[True])
    return cold and warm and ratio >= SOONER


async def _first_token(engine: Engine, name: str, speech_s: float) -> tuple[float, Usage]:
    """ms from the end of speech to the answer's first text, and what the server counted."""
    request = Request(
        id=name, session=name, messages=whole_conversation(name), live=True, wants=IN_WRITING, max_text_tokens=4
    )
    first_ms = 0.0
    async with engine.open(request, speech(speech_s)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Text):
                first_ms = first_ms or (time.monotonic() - chunks.timeline.commit_s) * 1000
            if isinstance(chunk, Usage):
                return first_ms, chunk
    raise AssertionError("an answer without its usage")


def pool_of(engine: Engine) -> Any:
    return engine._fleet.pools["thinker"]  # pyright: ignore[reportPrivateUsage]


async def _killed(engine: Engine, server: Server, id: str, after_s: float, found: Count) -> None:
    text, errors, sounds = "", 0, 0
    member = pool_of(engine).members()[0]
    pid = member.replica.host.hello.result().pid
    loop = asyncio.get_running_loop()
    try:
        async with asyncio.timeout(HANGS_S), engine.open(asked(id, "say")) as chunks:
            loop.call_later(after_s, os.kill, pid, signal.SIGKILL)
            async for chunk in chunks:
                if isinstance(chunk, Text):
                    text += chunk.text
                sounds += isinstance(chunk, Audio)
    except TimeoutError:
        found.wrong.append(f"{id}: hung behind {text!r}")
    except (ReplicaLost, StageFailed):
        errors += 1
    except EngineError as error:
        found.wrong.append(f"{id}: {error!r}")
    answers = ["".join(words) for words in server.given]
    if not any(one.startswith(text) for one in answers):
        found.wrong.append(f"{id}: spliced: {text!r}")
    elif text in answers:
        found.whole += 1
    elif errors:
        found.ended += 1
    else:
        found.wrong.append(f"{id}: cut without an error: {text!r}")
    async with asyncio.timeout(HANGS_S):  # until the worker is back
        while not (members := pool_of(engine).members()) or members[0] is member:  # noqa: ASYNC110
            await asyncio.sleep(0.02)


@contextmanager
def ray_cluster() -> Any:
    """One local node of Ray."""
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    import ray
    from ray.cluster_utils import Cluster

    node = {"num_cpus": 2, "object_store_memory": 80_000_000, "include_dashboard": False}
    cluster = Cluster(initialize_head=True, head_node_args=node)
    try:
        yield cluster.address
    finally:
        ray.shutdown()
        cluster.shutdown()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=["latency", "kills", "prepare"])
    parser.add_argument("--rounds", type=int, help="latency: 105; prepare: 5")
    parser.add_argument("--speech-s", type=float, default=20.0, help="how long the user speaks")
    parser.add_argument("--times", type=int, default=100)
    parser.add_argument("--launcher", choices=["local", "ray"], default="local")
    given = parser.parse_args()
    match given.what:
        case "latency":
            work = latency(given.rounds or 105)
        case "prepare":
            work = prepare(given.rounds or 5, given.speech_s)
        case _:
            work = kills(given.times, given.launcher)
    sys.exit(0 if asyncio.run(work) else 1)


if __name__ == "__main__":
    main()
