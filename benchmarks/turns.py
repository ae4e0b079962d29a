"""Measure turn detection: the time from a user's last word to the first sound of the answer, and how often users are
cut off.

    python -m engine.training.nano.make_turns out/turns          # make the recordings, once
    python -m benchmarks.turns out/turns [--rows auto,fixed] [--callers 4] [--json FILE]
    python -m benchmarks.turns out/turns --judged                 # only the waits; no timing
    python -m benchmarks.turns --corpus out/people                # the waits on recordings of people; no timing

Each row is one setting of the same server, used over the WebSocket with our own client. Each recording is sent in real
time, with the noise of a quiet room around it. The columns:

- *Last word*: when the piece of audio that contains the end of the last word was sent (make_turns knows where that is).
- *First sound*: the first 20 ms above −45 dBFS that a player without a buffer plays.
- *Wait*: the silence after which the server ended the turn.
- *Cut*: a turn that ended before the end of the last word, counted over the recordings with a pause. Settings were
  chosen on one half of these ("chosen by"); the other half is held out.
- *Wrong*: the answer does not do what was asked; refusals and questions back count as wrong.
- *In vain*: answers begun during pauses and discarded.

``fixed`` is server_vad with 500 ms. Of ``auto``, ``voice alone`` hides the words from the judge, ``words alone`` hides
the sound and the recognizer's verdict, and ``nothing`` hides everything. ``held`` is push to talk: the client commits
the audio at the last word, and *first sound* counts from the commit; in ``held late`` 4 s of silence come before the
first word.

With ``--judged`` nothing is timed and no server runs: speech recognition hears each recording until 150 ms after a
pause or the end, and the judge gives the wait; a cut is a wait shorter than the pause.

With ``--corpus`` the folder is that of ``benchmarks.turn_recordings``, or for eot-bench and TurnBench that of
``benchmarks.turn_data_sets``; ``benchmarks.human_turns`` explains the table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from app.bench.figures import percentile
from app.client import Client, ClientError, Response, SpeechStopped, connect
from app.limits.principal import Principal
from app.realtime.conversation.utterance import Utterance
from app.realtime.input.endpointing import SentenceEndOfTurn, prosody_fall
from app.realtime.ports import Eagerness, EndpointingContext
from app.realtime.session_context import SessionContext
from app.server import Server, config_of
from app.service import Service
from benchmarks import human_turns
from engine import MIC_RATE_HZ, SPEAKER_RATE_HZ, EngineSpec, load_config
from engine.audio.resampler import resample
from engine.core import Pcm
from engine.training.nano.dialogues import answers_rightly
from engine.training.nano.eval_ears import hear
from engine.worker.models.nano.ears import Ears
from engine.worker.stage import StageConfig

CONFIG = Path(__file__).parents[1] / "configs" / "nano.yaml"
LEAD_S = 0.5
PIECE = SPEAKER_RATE_HZ // 50
GUESS_MS = 120
"""No turn ends sooner: only then is the complete transcript requested."""
HEARD_S = 0.15
ANSWER_S = 25.0
"""Seconds after the last word; an answer that has not arrived by then counts as missing."""


@dataclass(frozen=True, slots=True)
class Row:
    """One setting of turn detection, and the information that it hides from the judge."""

    detection: dict[str, Any] | None
    """None: push to talk."""
    hides: Callable[[EndpointingContext], EndpointingContext] = lambda moment: moment
    lead_s: float = LEAD_S
    """Seconds of silence before the first word."""


def semantic(eagerness: str) -> dict[str, Any]:
    return {"type": "semantic_vad", "eagerness": eagerness}


ROWS = {
    "fixed": Row({"type": "server_vad", "silence_duration_ms": 500}),
    "high": Row(semantic("high")),
    "medium": Row(semantic("medium")),
    "low": Row(semantic("low")),
    "auto": Row(semantic("auto")),
    "words alone": Row(semantic("auto"), lambda moment: EndpointingContext(moment.words, listening=moment.listening)),
    "voice alone": Row(semantic("auto"), lambda moment: EndpointingContext(falling=moment.falling)),
    "nothing": Row(semantic("auto"), lambda moment: EndpointingContext()),
    "held": Row(None, lead_s=0.0),
    "held late": Row(None, lead_s=4.0),
}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The result of one recording; ``first_sound_ms`` is None if no answer to the whole recording was heard."""

    kind: str
    chosen: bool
    first_sound_ms: float | None
    wait_ms: float | None
    cut: bool
    right: bool
    text: str
    answer: str


class Blindfolded(SentenceEndOfTurn):
    """A judge from which a row's ``hides`` can hide part of the information."""

    def __init__(self) -> None:
        self.hides: Callable[[EndpointingContext], EndpointingContext] = lambda moment: moment

    def probability(self, moment: EndpointingContext) -> float:
        return super().probability(self.hides(moment))

    def silence_ms(self, moment: EndpointingContext, eagerness: Eagerness) -> int:
        return super().silence_ms(self.hides(moment), eagerness)


class Judged(Service):
    """A server with the judge above."""

    def __init__(self, spec: EngineSpec) -> None:
        super().__init__(spec)
        self.judge = Blindfolded()

    def context(
        self,
        caller: Principal | None = None,
        model: str | None = None,
        *,
        while_draining: bool = False,
        while_unavailable: bool = False,
    ) -> SessionContext:
        context = super().context(caller, model, while_draining=while_draining, while_unavailable=while_unavailable)
        return replace(context, end_of_turn=self.judge)

    @property
    def in_vain(self) -> int:
        return int(self.metrics.registry.get_sample_value("parley_guesses_total", {"what": "forgotten"}) or 0)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, nargs="?", help="the recordings of make_turns")
    parser.add_argument("--rows", default=",".join(ROWS), help="settings to measure, comma-separated")
    parser.add_argument("--kinds", default="whole,inserted,apart", help="kinds of recordings, comma-separated")
    parser.add_argument("--callers", type=int, default=4, help="number of concurrent users")
    parser.add_argument("--json", type=Path, help="file for the result of every recording")
    parser.add_argument("--judged", action="store_true", help="measure only the waits, without a server")
    parser.add_argument(
        "--corpus", type=Path, metavar="DIR", help="folder with recordings of people, used instead of FOLDER"
    )
    parser.add_argument("--fit", action="store_true", help="with --corpus: print the fitted constants")
    parser.add_argument(
        "--ears", type=Path, metavar="DIR", help="with --corpus: folder of the ASR models, if not pulled"
    )
    args = parser.parse_args()
    if args.corpus is not None:
        human_turns.main(args.corpus, args.ears, args.fit)
        return
    if args.folder is None:
        parser.error("name a folder of recordings, or --corpus DIR")
    kinds = args.kinds.split(",")
    scripts = [one for one in json.loads((args.folder / "index.json").read_text()) if one["kind"] in kinds]
    recordings = [(one, _pcm(args.folder / one["file"])) for one in scripts]
    if args.judged:
        judged(recordings)
    else:
        asyncio.run(table(recordings, args.rows.split(","), args.callers, args.json))


def _pcm(path: Path) -> Any:
    return soundfile.read(path, dtype="int16")[0]


async def table(recordings: Sequence[tuple[Any, Pcm]], names: Sequence[str], callers: int, kept: Path | None) -> None:
    """Measure the rows one after the other on one server, and print the table."""
    found: dict[str, list[Outcome]] = {}
    print("| setting | last word → first sound, p50 / p95 | wait, p50 | cut: chosen by / held out | wrong | in vain |")
    print("|---|---|---|---|---|---|")
    async with serving(load_config(CONFIG)) as (service, url):
        for name in names:
            service.judge.hides = ROWS[name].hides
            before = service.in_vain
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
        return await (_held(client, script, pcm, row.lead_s) if row.detection is None else _said(client, script, pcm))


async def _said(client: Client, script: Any, pcm: Pcm) -> Outcome:
    """Send a recording, and wait for the answer to the whole of it."""
    wave = _in_a_room(pcm, LEAD_S, ANSWER_S)
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
    except (TimeoutError, ClientError):
        answer = None
    finally:
        for task in (speaking, watching):
            task.cancel()
        await asyncio.wait([speaking, watching])
    return _outcome(script, answer, ended_s, cut=any(stop_ms < end_s * 1000 for stop_ms in stops))


async def _held(client: Client, script: Any, pcm: Pcm, lead_s: float) -> Outcome:
    """Send a recording by push to talk, commit at the last word, and wait for the answer."""
    words: Pcm = pcm[: round(script["end_s"] * MIC_RATE_HZ)]
    answer, let_go_s = None, 0.0
    try:
        async with asyncio.timeout(lead_s + script["end_s"] + ANSWER_S):
            await client.speak(_in_a_room(words, lead_s, 0.0))
            let_go_s = time.monotonic()
            await client.send("input_audio_buffer.commit")
            answer = await client.respond()
    except (TimeoutError, ClientError):
        pass
    return _outcome(script, answer, let_go_s, cut=False)


def _in_a_room(pcm: Pcm, before_s: float, behind_s: float) -> Pcm:
    """Return int16 at SPEAKER_RATE_HZ, with the noise of a quiet room before and after."""
    rng = np.random.default_rng(0)
    room = [rng.normal(0, 3, round(s * MIC_RATE_HZ)).astype(np.int16) for s in (before_s, behind_s)]
    return resample(np.concatenate([room[0], pcm, room[1]]), MIC_RATE_HZ, SPEAKER_RATE_HZ)


def _outcome(script: Any, answer: Response | None, ended_s: float, cut: bool) -> Outcome:
    """Return the result of a recording whose last word, or whose commit, was at ``ended_s``."""
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
    """Record where turns ended, in ms of the audio sent."""
    async for event in client.events():
        if isinstance(event, SpeechStopped):
            stops += [event.audio_end_ms]


@asynccontextmanager
async def serving(spec: EngineSpec) -> AsyncGenerator[tuple[Judged, str]]:
    """Run a server on a free port of the loopback address, and yield it with its URL."""
    service, listener = Judged(spec), socket.create_server(("127.0.0.1", 0))
    server, ready = Server(config_of(service), service), asyncio.Event()
    service.hosts.on_ready = service.hosts.on_failure = ready.set
    task = asyncio.create_task(server.serve(sockets=[listener]), name="server")
    try:
        await ready.wait()
        if service.engine_host.failure is not None:
            raise service.engine_host.failure
        yield service, f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.leave()
        await task


@dataclass(frozen=True, slots=True)
class Silence:
    """A pause or the end of a recording, and the judge's input there."""

    script: Any
    is_end: bool
    moment: EndpointingContext


Wait = Callable[[Silence], float]


def judged(recordings: Sequence[tuple[Any, Pcm]]) -> None:
    """Print how long the judge would wait at each pause and at each end."""
    ears = Ears(StageConfig())
    silences: list[Silence] = []
    for script, pcm in recordings:
        silences += [_silence(ears, script, pcm, at) for at in ("pause_at_s", "end_s") if script[at]]
    print("| setting | wait at the end, p50 / p95 | cut: chosen by / held out |")
    print("|---|---|---|")
    for name, wait in _waits().items():
        ends = [wait(one) for one in silences if one.is_end]
        pauses = [one for one in silences if not one.is_end]
        cut = {
            half: [wait(one) < one.script["pause_s"] * 1000 for one in pauses if one.script["chosen"] is half]
            for half in (True, False)
        }
        cuts = " / ".join(f"{sum(half)} of {len(half)}" for half in cut.values())
        print(f"| {name} | {_ms(ends, 50)} / {_ms(ends, 95)} | {cuts} |")


def _waits() -> dict[str, Wait]:
    judge = SentenceEndOfTurn()

    def by(eagerness: Eagerness, sees: Callable[[Silence], EndpointingContext]) -> Wait:
        return lambda one: max(GUESS_MS, judge.silence_ms(sees(one), eagerness))

    waits: dict[str, Wait] = {"fixed": lambda one: 500}
    waits |= {name: by(name, lambda one: one.moment) for name in ("high", "medium", "low")}
    waits["words and voice, no verdict of the ears"] = by("medium", lambda one: replace(one.moment, whole=None))
    waits["words alone"] = by("medium", lambda one: EndpointingContext(one.moment.words))
    waits["voice alone"] = by("medium", lambda one: EndpointingContext(falling=one.moment.falling))
    waits["nothing"] = by("medium", lambda one: EndpointingContext())
    return waits


def _silence(ears: Ears, script: Any, pcm: Pcm, at: str) -> Silence:
    said = pcm[: round(script[at] * MIC_RATE_HZ)]
    room = np.random.default_rng(0).normal(0, 3, round((0.3 + HEARD_S) * MIC_RATE_HZ)).astype(np.int16)
    split = round(0.3 * MIC_RATE_HZ)
    turn = Utterance(len(pcm) * 2)
    for chunk in hear(ears, np.concatenate([room[:split], said, room[split:]]))[0]:
        turn.understand(chunk.text, chunk.final, chunk.complete)
    moment = EndpointingContext(turn.words, prosody_fall(said), turn.whole)
    return Silence(script, at == "end_s", moment)


if __name__ == "__main__":
    main()
