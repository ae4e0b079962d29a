"""Measure speech recognition on recordings: requests recognized, other speech refused.

    python -m engine.training.nano.eval_ears                                the stage alone, on tests/data/spoken
    python -m engine.training.nano.eval_ears --engine configs/nano.yaml     through the engine: the answers are judged
    python -m engine.training.nano.eval_ears --url ws://127.0.0.1:8000      through a running server, as a client
    python -m engine.training.nano.eval_ears --conditions                   the stage alone, in noise, a room …: a table

``--set DIR`` uses another folder with an ``index.json`` (see make_spoken). Speech arrives in pieces of 20 ms;
``--pace`` is a multiple of real time (ignored by the stage alone). A request is right if the recognized words ask for
the same, or, through engine and server, if the answer is judged right. Other speech is refused if it is not understood,
or answered by a refusal. A confirmation question ("did you say …?") counts as neither. Exits with 1 if either rate is
below 90 %, with --conditions if below a bar of ``conditions``.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import json
import re
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import soundfile

from engine.chunk import Speech, Text, ToolCall, Transcript
from engine.core import IN_WRITING, MIC_RATE_HZ, Pcm, Request
from engine.training.nano.conditions import BARS, CONDITIONS
from engine.training.nano.dialogues import SLOTS, answers_rightly, expect_of, heard_templates
from engine.training.nano.eval_thinker import written
from engine.worker.models.nano.ears import Ears
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest

SPOKEN = Path(__file__).parents[3] / "tests" / "data" / "spoken"
PIECE = MIC_RATE_HZ // 50
BAR = 0.9


@dataclass(frozen=True, slots=True)
class Recording:
    """One line of an index; ``expect`` is None for speech that must be refused."""

    text: str
    voice: str
    expect: dict[str, Any] | None
    pcm: Pcm


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result for a recording: ``heard`` is "" if it was refused; ``meant`` is whether it matches the speech.

    ``late_ms`` is the time from the end of the input to the final words.
    """

    heard: str
    meant: bool
    late_ms: float = 0.0
    sure: bool = True

    @property
    def right(self) -> bool:
        return self.meant and self.sure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--set", type=Path, default=SPOKEN)
    parser.add_argument("--engine", type=Path, metavar="CONFIG")
    parser.add_argument("--url", help="of a running server")
    parser.add_argument("--pace", type=float, default=1.0)
    parser.add_argument("--callers", type=int, default=1, help="at a running server, how many at once")
    parser.add_argument("--conditions", action="store_true")
    parser.add_argument("--part", default="1/1", help="i/n: every n-th recording, from the i-th")
    args = parser.parse_args()
    first, every = map(int, args.part.split("/"))
    recordings = read(args.set)[first - 1 :: every]
    started = time.process_time()
    if args.engine:
        outcomes = asyncio.run(through_engine(args.engine, recordings, args.pace))
    elif args.url:
        outcomes = asyncio.run(through_server(args.url, recordings, args.pace, args.callers))
    elif args.conditions:
        sys.exit(not table(Ears(StageConfig()), recordings))
    else:
        ears = Ears(StageConfig())
        outcomes = [alone(ears, recording) for recording in recordings]
    report(recordings, outcomes, time.process_time() - started)


def read(folder: Path) -> list[Recording]:
    """Return the recordings of a folder, each with the silence around it that a turn has."""
    index = json.loads((folder / "index.json").read_text())
    return [Recording(e["text"], e["voice"], e["expect"], _pcm(folder / e["file"])) for e in index]


def report(recordings: list[Recording], outcomes: list[Outcome], cpu_s: float) -> None:
    rates: dict[str, list[bool]] = defaultdict(list)
    for recording, outcome in zip(recordings, outcomes, strict=True):
        inside = recording.expect is not None
        rates["answered rightly" if inside else "refused"].append(outcome.right)
        rates[f"  {'in' if inside else 'out of'} domain, {recording.voice}"].append(outcome.right)
        if not outcome.right:
            print(f"{'IN ' if inside else 'OUT'} {recording.voice:6} {recording.text!r} -> {outcome.heard!r}")
    for name, right in sorted(rates.items(), key=lambda item: item[0].strip()):
        print(f"{name:28} {sum(right)}/{len(right)} = {sum(right) / len(right):.3f}")
    audio_s = sum(len(recording.pcm) for recording in recordings) / MIC_RATE_HZ
    late = sorted(outcome.late_ms for outcome in outcomes)
    print(f"CPU of this process per second of audio {cpu_s / audio_s:.3f}")
    print(f"end of input to final words: p50 {late[len(late) // 2]:.0f} ms, p95 {late[len(late) * 95 // 100]:.0f} ms")
    sys.exit(any(sum(rates[name]) < BAR * len(rates[name]) for name in ("answered rightly", "refused")))


def table(ears: Ears, recordings: list[Recording]) -> bool:
    """Print the results in every condition, and return whether the bars are met."""
    print("| condition | heard rightly | asked back | rightly so | refused | wrong | others refused | asked back |")
    print("|---|---|---|---|---|---|---|---|")
    reached = True
    for name, worsened in CONDITIONS.items():
        outcomes = [(r.expect is not None, alone(ears, _in(worsened, r))) for r in recordings]
        inside, outside = ([o for is_in, o in outcomes if is_in is wanted] for wanted in (True, False))
        right, refused, back, rightly = _shares(inside)
        _, *others = _shares(outside)
        figures = (right, back, rightly, refused, 1 - right - back - refused, *others[:2])
        print(f"| {name} | {' | '.join(f'{figure:.3f}' for figure in figures)} |", flush=True)
        reached = reached and right >= BARS.get(name, 0)
    return reached


def _in(worsened: Callable[[Pcm], Pcm], recording: Recording) -> Recording:
    """Return the recording in a condition, including the silence that ends the turn."""
    return replace(recording, pcm=worsened(np.concatenate([recording.pcm, np.zeros(MIC_RATE_HZ * 2 // 5, np.int16)])))


def _shares(outcomes: list[Outcome]) -> list[float]:
    """Return the shares: right, refused, asked back, and asked back with the right meaning."""
    verdicts = [(o.right, not o.heard, not o.sure, o.meant and not o.sure) for o in outcomes]
    return [sum(column) / len(verdicts) for column in zip(*verdicts, strict=True)]


def alone(ears: Ears, recording: Recording) -> Outcome:
    """Run the stage alone on a recording."""
    chunks, late_ms = hear(ears, recording.pcm)
    last = chunks[-1]
    heard, sure = (last.text, last.confident) if last.understood else ("", True)
    if recording.expect is None:
        return Outcome(heard, not heard, late_ms, sure)
    return Outcome(heard, recording.expect in meanings(heard), late_ms, sure)


def hear(ears: Ears, pcm: Pcm) -> tuple[list[Transcript], float]:
    """Return the stage's transcripts, stepping after every piece, and the ms after the last piece."""
    pace: Any = SimpleNamespace()
    req = StageRequest(request=Request(id="r", session="s", messages=(), live=True), slot=0, pace=pace)
    ears.open(req)
    chunks: list[Transcript] = []
    for piece in pieces(pcm):
        req.pending.append(piece)
        chunks += run(ears, req)
    req.ended, started = True, time.perf_counter()
    chunks += run(ears, req)
    return chunks, (time.perf_counter() - started) * 1000


def run(ears: Ears, req: StageRequest) -> list[Transcript]:
    chunks: list[Transcript] = []
    while req.ready:
        (said,) = ears.step([req])
        assert not isinstance(said, Exception)
        chunks += [chunk for chunk in said if isinstance(chunk, Transcript)]
    return chunks


async def through_engine(config: Path, recordings: list[Recording], pace: float) -> list[Outcome]:
    from engine import Engine, load_config

    async with Engine(load_config(config)) as engine:
        return [await _ask_engine(engine, recording, pace) for recording in recordings]


async def _ask_engine(engine: Any, recording: Recording, pace: float) -> Outcome:
    ended = time.perf_counter()

    async def spoken() -> AsyncIterator[Speech]:
        nonlocal ended
        for piece in pieces(recording.pcm):
            yield Speech(piece)
            await asyncio.sleep(PIECE / MIC_RATE_HZ / pace)
        ended = time.perf_counter()

    request = Request(id="evaluation", session="evaluation", messages=(), live=True, wants=IN_WRITING)
    heard, answer, late_ms = "", "", 0.0
    async with engine.open(request, spoken()) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Transcript) and chunk.final:
                heard = chunk.text if chunk.understood else ""
                late_ms = (time.perf_counter() - ended) * 1000
            elif isinstance(chunk, Text):
                answer += chunk.text
            elif isinstance(chunk, ToolCall):
                answer += f" {written(chunk)}"
    return Outcome(f"{heard} -> {answer}", _judged(recording, answer), late_ms)


async def through_server(url: str, recordings: list[Recording], pace: float, callers: int) -> list[Outcome]:
    """Run one conversation per recording; the server must detect the end of the turn."""
    free = asyncio.Semaphore(callers)

    async def ask(recording: Recording) -> Outcome:
        async with free:
            return await _ask_server(url, recording, pace)

    return await asyncio.gather(*map(ask, recordings))


async def _ask_server(url: str, recording: Recording, pace: float) -> Outcome:
    from websockets.asyncio.client import connect

    answer = ""
    async with connect(f"{url}/v1/realtime?model=nano", max_size=None) as socket, asyncio.TaskGroup() as group:
        speaking = group.create_task(_speak(socket, recording, pace), name="speak")
        async with asyncio.timeout(180):  # nano counts to a hundred, if it is asked to
            async for line in socket:
                event = json.loads(line)
                if event["type"] == "response.created":
                    answer = ""
                elif event["type"] == "response.output_audio_transcript.delta":
                    answer += event["delta"]
                elif event["type"] == "response.done" and answer:
                    break
        speaking.cancel()
    return Outcome(answer, _judged(recording, answer))


async def _speak(socket: Any, recording: Recording, pace: float) -> None:
    """Send the recording, then silence until cancelled, like an open microphone."""
    from scipy.signal import resample_poly

    silence = np.zeros(MIC_RATE_HZ * 30, np.int16)
    wave = resample_poly(np.concatenate([recording.pcm, silence]).astype(np.float32), 3, 2)
    due = time.monotonic()
    for at in range(0, len(wave), PIECE * 3 // 2):
        piece = np.clip(wave[at : at + PIECE * 3 // 2], -32768, 32767).astype("<i2")
        audio = base64.b64encode(piece.tobytes()).decode()
        await socket.send(json.dumps({"type": "input_audio_buffer.append", "audio": audio}))
        due += PIECE / MIC_RATE_HZ / pace
        await asyncio.sleep(max(0.0, due - time.monotonic()))


def _judged(recording: Recording, answer: str) -> bool:
    """Judge an answer; other speech may be refused by the recognizer or by the thinker."""
    if recording.expect is not None:
        return answers_rightly(recording.expect, answer)
    return any(answers_rightly({"kind": kind}, answer) for kind in ("unheard", "refuse"))


def pieces(pcm: Pcm) -> Iterator[Pcm]:
    for at in range(0, len(pcm), PIECE):
        yield pcm[at : at + PIECE]


def meanings(text: str) -> list[dict[str, Any]]:
    """Return the requests that the text may mean: one per matching template, usually one in total."""
    spoken = "".join(f"{word} " for word in text.split())
    found = []
    for kind, pattern in _patterns():
        if match := pattern.fullmatch(spoken):
            payload = {slot.rstrip("_"): value.strip() for slot, value in match.groupdict().items() if value}
            found.append(dict(expect_of(kind, text, payload)))
    return found


@cache
def _patterns() -> list[tuple[str, re.Pattern[str]]]:
    slots: dict[str, Callable[[], str]] = {"words": lambda: f"(?P<words>(?:{_any('word')}){{1,4}})"}
    compiled = []
    for kind, templates in heard_templates().items():
        for template in templates:
            parts = []
            for token in re.findall(r"[()|]|\{\w+\}|[^\s()|{}]+", template):
                if token in "()|":
                    parts.append("(?:" if token == "(" else token)
                elif token.startswith("{"):
                    name = token[1:-1]
                    parts.append(slots[name]() if name in slots else f"(?P<{name}>{_any(name)})")
                else:
                    parts.append(f"{token} ")
            compiled.append((kind, re.compile("".join(parts))))
    return compiled


def _any(slot: str) -> str:
    return "(?:" + "|".join(f"{value} " for value in SLOTS[slot]) + ")"


def _pcm(path: Path) -> Pcm:
    wave, _ = soundfile.read(path, dtype="float32")
    quiet = np.random.default_rng(1).normal(0, 1e-4, MIC_RATE_HZ)  # noise of a quiet room
    before, after = quiet[: MIC_RATE_HZ * 3 // 10], quiet[: MIC_RATE_HZ // 2]
    return (np.concatenate([before, wave, after]) * 32767).astype(np.int16)


if __name__ == "__main__":
    main()
