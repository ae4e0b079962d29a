"""What turn detection is worth: the time from the last word to the first sound, and who is cut off, in one run.

    python -m engine.training.nano.make_turns out/turns          # the recordings, once
    python scripts/bench_turns.py out/turns [--rows auto,fixed] [--callers 4] [--json FILE]
    python scripts/bench_turns.py out/turns --smart-turn FILE    # would Smart Turn know the ends from the pauses?

Each row is one setting of the same server, asked over the WebSocket as our clients ask. Each recording is said into a
microphone of its own at its own pace, with a quiet room around it. A *cut* is a turn that ended before the last word's
end, counted over the recordings with a pause; the settings were chosen by one half of them, the other was held out.
*Last word* is the moment at which the piece of sound that holds its last sample was sent (where that is, the synthesis
tells: see make_turns); *first sound* is the first 20 ms above −45 dBFS that a player without a buffer plays. *Wait* is
the silence that ended those turns, *in vain* how many answers were begun in pauses and forgotten. A wrong answer is one
that does not do what was asked, refusals and questions back among them. ``fixed`` is server_vad with 500 ms; of
``auto``, ``voice alone`` hides the words from the judge, ``words alone`` the voice and the ears' verdict, ``nothing``
all.

Smart Turn (pipecat-ai, BSD-2-Clause; FILE is its ONNX file, in the wheel of that name) is asked 200 ms after each
pause and each end.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import sys
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import soundfile

from app.bench.figures import percentile
from app.client import Client, SpeechStopped, connect
from app.media import resample
from app.realtime.endpoint import Eagerness, Judge, Moment, Sentences
from app.realtime.house import House
from app.server import Server, config_of
from app.service import Service
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ, EngineSpec, load_config
from engine.core import Pcm
from engine.training.nano.dialogues import answers_rightly

CONFIG = Path(__file__).parents[1] / "configs" / "nano.yaml"
LEAD_S = 0.5
PIECE = SPEAKER_RATE_HZ // 50
ANSWER_S = 25.0
"""After the last word; an answer that has not come by then is missing."""


@dataclass(frozen=True, slots=True)
class Row:
    """How a server is asked, and what its judge does not see."""

    detection: dict[str, Any]
    hides: Callable[[Moment], Moment] = lambda moment: moment


def semantic(eagerness: str) -> dict[str, Any]:
    return {"type": "semantic_vad", "eagerness": eagerness}


ROWS = {
    "fixed": Row({"type": "server_vad", "silence_duration_ms": 500}),
    "high": Row(semantic("high")),
    "medium": Row(semantic("medium")),
    "low": Row(semantic("low")),
    "auto": Row(semantic("auto")),
    "words alone": Row(semantic("auto"), lambda moment: Moment(moment.words, listening=moment.listening)),
    "voice alone": Row(semantic("auto"), lambda moment: Moment(falling=moment.falling)),
    "nothing": Row(semantic("auto"), lambda moment: Moment()),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of one recording; ``first_sound_ms`` is None where no answer to the whole of it was heard."""

    kind: str
    chosen: bool
    first_sound_ms: float | None
    wait_ms: float | None
    cut: bool
    right: bool
    text: str
    answer: str


class Blindfolded:
    """A judge that does not see all of the moment."""

    def __init__(self) -> None:
        self.hides: Callable[[Moment], Moment] = lambda moment: moment
        self._judge: Judge = Sentences()

    def silence_ms(self, moment: Moment, eagerness: Eagerness) -> int:
        return self._judge.silence_ms(self.hides(moment), eagerness)


class Judged(Service):
    """A server with that judge."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.judge = Blindfolded()

    def house(self) -> House:
        return replace(super().house(), judge=self.judge)

    @property
    def in_vain(self) -> int:
        return int(self.metrics.registry.get_sample_value("parley_guesses_total", {"what": "forgotten"}) or 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--rows", default=",".join(ROWS), help="which settings, by comma")
    parser.add_argument("--kinds", default="whole,inserted,apart", help="which recordings, by comma")
    parser.add_argument("--callers", type=int, default=4, help="how many speak at once")
    parser.add_argument("--json", type=Path, help="keep every outcome there")
    parser.add_argument("--smart-turn", type=Path, metavar="FILE")
    args = parser.parse_args()
    kinds = args.kinds.split(",")
    scripts = [one for one in json.loads((args.folder / "index.json").read_text()) if one["kind"] in kinds]
    recordings = [(one, soundfile.read(args.folder / one["file"], dtype="int16")[0]) for one in scripts]
    if args.smart_turn:
        smart_turn(args.smart_turn, recordings)
    else:
        asyncio.run(table(recordings, args.rows.split(","), args.callers, args.json))


async def table(recordings: Sequence[tuple[Any, Pcm]], names: Sequence[str], callers: int, kept: Path | None) -> None:
    """Every row, one after the other on one server."""
    found: dict[str, list[Outcome]] = {}
    print("| setting | last word → first sound, p50 / p95 | wait, p50 | cut: chosen by / held out | wrong | in vain |")
    print("|---|---|---|---|---|---|")
    async with serving(load_config(CONFIG)) as (service, url):
        for name in names:
            service.judge.hides, before = ROWS[name].hides, service.in_vain
            free = asyncio.Semaphore(callers)
            found[name] = await asyncio.gather(*(_asked(free, url, ROWS[name], one, pcm) for one, pcm in recordings))
            print(_line(name, found[name], service.in_vain - before), flush=True)
            if kept is not None:
                await asyncio.to_thread(_keep, found, kept)


def _keep(found: dict[str, list[Outcome]], path: Path) -> None:
    path.write_text(json.dumps({row: [asdict(one) for one in found[row]] for row in found}, indent=0))


def _line(name: str, outcomes: Sequence[Outcome], in_vain: int) -> str:
    whole = [one for one in outcomes if one.kind == "whole"]
    heard = [one.first_sound_ms for one in whole if one.first_sound_ms is not None]
    waits = [one.wait_ms for one in whole if one.wait_ms is not None]
    paused = [[one.cut for one in outcomes if one.kind != "whole" and one.chosen is half] for half in (True, False)]
    cuts = " / ".join(f"{sum(half)} of {len(half)}" for half in paused)
    missing = f" ({len(whole) - len(heard)} missing)" if len(heard) < len(whole) else ""
    wrong = sum(not one.right for one in whole)
    return (
        f"| {name} | {_ms(heard, 50)} / {_ms(heard, 95)}{missing} | {_ms(waits, 50)} | {cuts} "
        f"| {wrong} of {len(whole)} | {in_vain} |"
    )


def _ms(values: Sequence[float], percent: float) -> str:
    found = percentile(values, percent)
    return "–" if found is None else f"{found:.0f} ms"


async def _asked(free: asyncio.Semaphore, url: str, row: Row, script: Any, pcm: Pcm) -> Outcome:
    async with free, connect(url, eagerness=None) as client:
        await client.configure(audio={"input": {"turn_detection": row.detection}})
        return await _said(client, script, pcm)


async def _said(client: Client, script: Any, pcm: Pcm) -> Outcome:
    """Say a recording, and hear the answer to the whole of it."""
    rng = np.random.default_rng(0)
    room = [rng.normal(0, 3, round(s * MIC_RATE_HZ)).astype(np.int16) for s in (LEAD_S, ANSWER_S)]
    wave = resample(np.concatenate([room[0], pcm, room[1]]), MIC_RATE_HZ, SPEAKER_RATE_HZ)
    end_s = LEAD_S + script["end_s"]
    stops: list[int] = []
    watching = asyncio.create_task(_watch(client, stops), name="watch")
    ended_s = time.monotonic() + int(end_s * SPEAKER_RATE_HZ) // PIECE * 0.02
    speaking = asyncio.create_task(client.speak(wave), name="speak")
    answer = None
    try:
        async with asyncio.timeout(end_s + ANSWER_S):
            while answer is None or answer.player.audible_s is None or answer.player.audible_s < ended_s:
                answer = await client.answer()
    except TimeoutError:
        answer = None
    finally:
        for task in (speaking, watching):
            task.cancel()
        await asyncio.wait([speaking, watching])
    cut = any(stop_ms < end_s * 1000 for stop_ms in stops)
    said: Any = {"text": script["text"], "kind": script["kind"], "chosen": script["chosen"], "cut": cut}
    if answer is None or answer.player.audible_s is None:
        return Outcome(first_sound_ms=None, wait_ms=None, right=False, answer="", **said)
    return Outcome(
        first_sound_ms=(answer.player.audible_s - ended_s) * 1000,
        wait_ms=(answer.ledger or {}).get("turn_ms"),
        right=answers_rightly(script["expect"], answer.text),
        answer=answer.text,
        **said,
    )


async def _watch(client: Client, stops: list[int]) -> None:
    """Where turns ended, in ms of what was sent."""
    async for event in client.events():
        if isinstance(event, SpeechStopped):
            stops += [event.audio_end_ms]


@asynccontextmanager
async def serving(spec: EngineSpec) -> AsyncGenerator[tuple[Judged, str]]:
    """A server on a free port of the loopback address, and its URL."""
    service, listener = Judged(spec), socket.create_server(("127.0.0.1", 0))
    server, ready = Server(config_of(service), service), asyncio.Event()
    service.on_ready = service.on_failure = ready.set
    task = asyncio.create_task(server.serve(sockets=[listener]), name="server")
    try:
        await ready.wait()
        if service.failure is not None:
            raise service.failure
        yield service, f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.leave()
        await task


def smart_turn(weights: Path, recordings: Sequence[tuple[Any, Pcm]]) -> None:
    """How well the probability that a turn is over tells ends from pauses, and what each asking takes."""
    finished = _finished(weights)
    ends: list[float] = []
    pauses: list[float] = []
    took: list[float] = []
    for script, pcm in recordings:
        for at_s, kept in ((script["end_s"], ends), (script["pause_at_s"], pauses)):
            if at_s:
                quiet = np.zeros(MIC_RATE_HZ // 5, np.int16)
                begun_s = time.thread_time()
                kept.append(finished(np.concatenate([pcm[: round(at_s * MIC_RATE_HZ)], quiet])))
                took.append((time.thread_time() - begun_s) * 1000)
    above = np.mean([[end > pause for pause in pauses] for end in ends])
    print(f"an end is held for likelier an end than a pause in {above:.2f} of {len(ends)} × {len(pauses)} pairs")
    for limit in (0.5, 0.9, 0.97):
        said = [f"{sum(one > limit for one in some)} of {len(some)}" for some in (ends, pauses)]
        print(f"above {limit}: {said[0]} ends, {said[1]} pauses")
    print(f"one asking takes {_ms(took, 50)} of CPU")


def _finished(weights: Path) -> Callable[[Pcm], float]:
    """Smart Turn as its own code asks it: log-mel features of the last 8 s, with silence before."""
    import onnxruntime
    from transformers import WhisperFeatureExtractor

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    network: Any = onnxruntime.InferenceSession(str(weights), options, providers=["CPUExecutionProvider"])
    extract: Any = WhisperFeatureExtractor(chunk_length=8)
    most = 8 * MIC_RATE_HZ

    def finished(pcm: Pcm) -> float:
        wave = pcm[-most:].astype(np.float32) / 32768
        wave = np.pad(wave, (most - len(wave), 0))
        features = extract(wave, sampling_rate=MIC_RATE_HZ, padding="max_length", max_length=most, do_normalize=True)
        return float(network.run(None, {"input_features": np.asarray(features.input_features, np.float32)})[0].item())

    return finished


if __name__ == "__main__":
    main()
