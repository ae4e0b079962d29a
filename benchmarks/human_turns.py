"""The evaluation behind ``benchmarks.turns --corpus``: waits and early cuts on recordings of people.

Nothing is timed and no server runs, so a busy machine changes no figure. Each recording gives one end and at most one
pause (``benchmarks.turn_recordings``, ``benchmarks.turn_data_sets``). The end-of-turn model knows the sound
``SOUND_MS`` after the last word, and the words ``WORDS_MS`` after it. At an end, *wait* is the silence that ends the
turn. At a pause, a wait shorter than the pause is a *cut*. The ASR also hears 250 ms after the last word, of which 100
ms at an end are the recording's.

All figures are of the held-out half. ``left out`` fits the constants for each language on the other languages only.
Smart Turn alone ends a turn at once if its probability is above 0.5, otherwise after 3 s, as pipecat does.
"""

from __future__ import annotations

import asyncio
import itertools
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from numpy.typing import NDArray

from app.bench.figures import percentile
from app.realtime.input.endpointing import SentenceEndOfTurn, prosody_fall
from app.realtime.input.fused_end_of_turn import Fit, FusedEndOfTurn, Weights, features
from app.realtime.input.smart_turn import SmartTurn
from app.realtime.ports import EndOfTurnModel, EndpointingContext
from benchmarks.recognizers import ears_alone, transcript
from engine import MIC_RATE_HZ, Engine
from engine.core import Pcm
from engine.deployment.model_catalog import model_of

SOUND_MS = 200
"""Silence after which the judgement of the sound is known: it is asked at 100 ms, and takes 60 to 150 ms."""
WORDS_MS = 300
"""Silence after which the words are known: they are asked for at 120 ms, and Moonshine takes some 50 to 150 ms."""
MOST_CUTS = 0.08
LONGEST_P95_MS = 1_300
PIPECAT_MS = 3_000
ENGLISH_EARS = "moonshine-tiny-en"
OTHER_EARS = "whisper-base"
SOUND = SmartTurn()


@dataclass(frozen=True, slots=True)
class Place:
    """An end or a pause in a recording; ``moment`` has all that is known of it in the end."""

    language: str
    fit: bool
    pause_ms: float | None
    """None: an end."""
    moment: EndpointingContext

    @property
    def is_end(self) -> bool:
        return self.pause_ms is None


Wait = Callable[[Place], float]


def main(folder: Path, ears_at: Path | None, fits: bool) -> None:
    """Print the table, or with ``fits`` the fitted constants."""
    places = [*known_places(folder, ears_at)]
    chosen = [place for place in places if place.fit]
    if fits:
        print(fitted(chosen))
        return
    held_out = [place for place in places if not place.fit]
    languages = sorted({place.language for place in held_out})
    left_out: dict[str, Fit] = {}
    if len(languages) > 1:
        left_out = {name: fitted([place for place in chosen if place.language != name]) for name in languages}
    groups = {name: [name] for name in languages if name == "en"} | {"all": languages}
    groups |= {name: [name] for name in languages if name != "en"}
    print("| setting | language | ends, pauses | wait p50 (95 %), ms | wait p95, ms | cut at pauses, % (95 %) |")
    print("|---|---|---|---|---|---|")
    for (name, wait), (group, members) in itertools.product(waits(left_out).items(), groups.items()):
        print(line(name, group, [place for place in held_out if place.language in members], wait))


def waits(left_out: Mapping[str, Fit]) -> dict[str, Wait]:
    """Return each setting's wait at a place."""
    models = {name: FusedEndOfTurn(SOUND, fit) for name, fit in left_out.items()}
    left: dict[str, Wait] = {"smart_turn, language left out": lambda place: waited_ms(models[place.language], place)}
    return {
        "500 ms of silence": lambda place: 500,
        "words and intonation": partial(waited_ms, SentenceEndOfTurn()),
        "Smart Turn alone": lambda place: SOUND_MS if (place.moment.sound or 0) > 0.5 else PIPECAT_MS,
        "smart_turn": partial(waited_ms, FusedEndOfTurn(SOUND)),
        **(left if models else {}),
    }


def waited_ms(model: EndOfTurnModel, place: Place) -> float:
    """Return the silence that ends the turn, as what is known of it grows."""
    unheard = replace(place.moment, words="", heard=False)
    unprocessed = replace(unheard, sound=None, sound_due=bool(model.window_s))
    known = ((0, SOUND_MS, unprocessed), (SOUND_MS, WORDS_MS, unheard))
    for since_ms, until_ms, moment in known:
        if (wait_ms := model.silence_ms(moment, "medium")) < until_ms:
            return max(since_ms, wait_ms)
    return max(WORDS_MS, model.silence_ms(place.moment, "medium"))


def line(name: str, group: str, places: Sequence[Place], wait: Wait) -> str:
    ends = [wait(place) for place in places if place.is_end]
    cuts = [wait(place) < place.pause_ms for place in places if place.pause_ms is not None]
    low, high = median_interval(ends)
    least, most = wilson(sum(cuts), len(cuts))
    return (
        f"| {name} | {group} | {len(ends)}, {len(cuts)} | {np.median(ends):.0f} ({low:.0f} to {high:.0f}) "
        f"| {percentile(ends, 95):.0f} | {100 * np.mean(cuts):.0f} ({100 * least:.0f} to {100 * most:.0f}) |"
    )


def median_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return the 95 % interval of the median, by 2,000 seeded bootstrap samples."""
    drawn = np.random.default_rng(0).choice(np.asarray(values), (2_000, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), (2.5, 97.5))
    return float(low), float(high)


def wilson(hits: int, count: int) -> tuple[float, float]:
    """Return the 95 % interval of a share (Wilson's score)."""
    z = 1.96
    share = hits / count
    middle = (share + z**2 / (2 * count)) / (1 + z**2 / count)
    half = z / (1 + z**2 / count) * float(np.sqrt(share * (1 - share) / count + z**2 / (4 * count**2)))
    return max(0.0, middle - half), min(1.0, middle + half)


def fitted(places: Sequence[Place]) -> Fit:
    """Fit the regressions, and choose the curve with the least median wait within the bounds on cuts and p95."""
    heard = regression(places, heard=True)
    unheard = regression(places, heard=False)
    grid = itertools.product(np.arange(-1, 4.1, 0.5), (0.25, 0.5, 1.0, 2.0), (2.0, 4.0, 6.0, 8.0))
    fits = (Fit(heard, unheard, float(centre), sure, doubtful) for centre, sure, doubtful in grid)
    return min(fits, key=lambda fit: cost(places, fit))


def regression(places: Sequence[Place], heard: bool) -> Weights:
    """Logistic regression by Newton's method, with a ridge of 0.5 on all but the bias."""
    inputs = np.array([features(replace(place.moment, heard=heard)) for place in places])
    wanted = np.array([float(place.is_end) for place in places])
    ridge = np.diag([1e-6, 0.5, 0.5, 0.5])
    weights: NDArray[np.float64] = np.zeros(4)
    for _ in range(30):
        probability = 1 / (1 + np.exp(-inputs @ weights))
        gradient = inputs.T @ (probability - wanted) + ridge @ weights
        curvature = (inputs.T * (probability * (1 - probability))) @ inputs + ridge
        weights = weights - np.linalg.solve(curvature, gradient)
    bias, sound, fall, words = (round(float(weight), 2) for weight in weights)
    return bias, sound, fall, words


def cost(places: Sequence[Place], fit: Fit) -> float:
    """The median wait, and a price for cuts and late ends beyond the bounds."""
    model = FusedEndOfTurn(SOUND, fit)
    ends = [waited_ms(model, place) for place in places if place.is_end]
    cuts = [waited_ms(model, place) < place.pause_ms for place in places if place.pause_ms is not None]
    too_many = max(0.0, float(np.mean(cuts)) - MOST_CUTS)
    too_late_ms = max(0.0, float(np.percentile(ends, 95)) - LONGEST_P95_MS)
    return float(np.mean(ends)) / 10 + float(np.median(ends)) + 5_000 * too_many + too_late_ms


def known_places(folder: Path, ears_at: Path | None) -> Iterator[Place]:
    """Yield the places of a corpus. ``known.json`` in its folder keeps what the models said of them."""
    kept = folder / "known.json"
    known: dict[str, Any] = json.loads(kept.read_text()) if kept.exists() else {}
    sentences: list[Any] = json.loads((folder / "index.json").read_text())
    for language in sorted({sentence["language"] for sentence in sentences}):
        spoken = [sentence for sentence in sentences if sentence["language"] == language]
        missing = [(one, at) for one in spoken for at in moments(one) if key(one, at) not in known]
        if missing:
            clips = [cut(folder, *pair) for pair in missing]
            words = asyncio.run(heard([np.concatenate([said, after]) for said, after in clips], language, ears_at))
            known |= {
                key(*pair): judged(said, text) for pair, (said, _), text in zip(missing, clips, words, strict=True)
            }
            kept.write_text(json.dumps(known, indent=0, ensure_ascii=False))
    for sentence, at in ((one, at) for one in sentences for at in moments(one)):
        entry = known[key(sentence, at)]
        known_of = {"words": entry["words"], "falling": entry["falling"], "sound": entry["sound"]}
        moment = EndpointingContext(**known_of, heard=True, languages=(sentence["language"],))
        pause_ms = 1_000 * sentence["pause_s"] if at == "pause" else None
        yield Place(sentence["language"], sentence["fit"], pause_ms, moment)


def moments(sentence: Any) -> tuple[str, ...]:
    """Return the moments of a sentence that are judged. Without a pause, ``pause_s`` is 0."""
    return ("pause", "end") if sentence["pause_s"] else ("end",)


def key(sentence: Any, at: str) -> str:
    return f"{sentence['file']}|{at}"


def judged(said: Pcm, words: str) -> dict[str, Any]:
    """Return what is known of a place: the sound's probability, the fall of the voice, and the words."""
    sound = SOUND.probability(np.concatenate([said, room(100)]))
    return {"sound": sound, "falling": prosody_fall(said), "words": words}


def cut(folder: Path, sentence: Any, at: str) -> tuple[Pcm, Pcm]:
    """Return the turn up to a place, and the 100 ms after it."""
    pcm: Any = soundfile.read(folder / sentence["file"], dtype="int16")[0]
    place = round(sentence["end_s" if at == "end" else "pause_at_s"] * MIC_RATE_HZ)
    after = pcm[place : place + MIC_RATE_HZ // 10] if at == "end" else room(100)
    return pcm[:place], after


def room(ms: int) -> Pcm:
    """A quiet room."""
    return np.random.default_rng(0).normal(0, 3, ms * MIC_RATE_HZ // 1_000).astype(np.int16)


async def heard(clips: Sequence[Pcm], language: str, ears_at: Path | None) -> list[str]:
    """Transcribe recordings by Parley's own stage: Moonshine for English, Whisper base for other languages."""
    name = ENGLISH_EARS if language == "en" else OTHER_EARS
    weights = name if ears_at is None else str(ears_at / name)
    ears = ears_alone(model_of(name).use, weights, "" if language == "en" else language)
    async with Engine(ears) as engine:
        return [await transcript(engine, np.concatenate([room(300), pcm, room(150)])) for pcm in clips]
