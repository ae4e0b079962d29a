"""The ears of the built-in model: requests are understood as they come, and nothing else is."""

from __future__ import annotations

import math
import random
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import soundfile

from engine.chunk import Chunk, Speech, Transcript
from engine.core import MIC_RATE_HZ, Pcm, Request
from engine.errors import WeightsError
from engine.training.nano.conditions import with_noise
from engine.training.nano.dialogues import read_requests, sample_heard, sample_request
from engine.training.nano.ears import ASIDES, requests_automaton
from engine.training.nano.eval_ears import SPOKEN, Recording, alone, meanings, pieces, read
from engine.training.nano.eval_silence import FILLERS, Silence, Split, Watched, silences, split
from engine.worker.models.nano import ears as nano_ears
from engine.worker.models.nano import hush as nano_hush
from engine.worker.models.nano import utterance as nano_utterance
from engine.worker.models.nano.ears import PIECE, ROW, Ears
from engine.worker.models.nano.utterance import FIRST, MEAN_REACH, NanoUtterance
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from tests.engine.fakes import only

ASIDE = SPOKEN.parent / "aside"
LIVE = Request(id="r", session="s", messages=(), live=True)


@pytest.fixture(scope="module")
def ears() -> Ears:
    return Ears(StageConfig())


@pytest.fixture(scope="module")
def recordings() -> list[Recording]:
    return read(SPOKEN)


@pytest.fixture(scope="module")
def request_spoken(recordings: list[Recording]) -> Pcm:
    return next(r.pcm for r in recordings if r.text == "say the word garlic")


@pytest.fixture(scope="module")
def spoken_apart(recordings: list[Recording]) -> Split:
    """A request, and where silence may come between two of its words."""
    request = split(Watched(StageConfig()), next(r for r in recordings if r.text == "nano tell me one times two"))
    assert request
    return request


def req_at(ears: Ears, slot: int = 0, request: Request = LIVE) -> StageRequest:
    pace: Any = SimpleNamespace()
    req = StageRequest(request=request, slot=slot, pace=pace)
    ears.open(req)
    return req


def steps(ears: Ears, req: StageRequest) -> Iterator[Transcript]:
    while req.ready:
        (chunks,) = ears.step([req])
        assert not isinstance(chunks, Exception)
        yield from only(Transcript, chunks)


def hear(ears: Ears, rows: list[Pcm], slot: int = 0) -> list[Transcript]:
    req = req_at(ears, slot)
    chunks: list[Transcript] = []
    for row in rows:
        req.pending.append(row)
        chunks += steps(ears, req)
    req.ended = True
    chunks += steps(ears, req)
    assert req.done
    return chunks


def tones(seconds: float) -> Pcm:
    """Something like music: a chord that changes four times a second."""
    t = np.arange(int(seconds * MIC_RATE_HZ)) / MIC_RATE_HZ
    root = 220 * 2 ** (np.array([0, 3, 7, 10])[(t * 4).astype(int) % 4] / 12)
    wave = sum(np.sin(2 * np.pi * root * ratio * t) for ratio in (1, 1.26, 1.5, 2))
    return (np.asarray(wave) * 3000).astype(np.int16)


def hum(seconds: float) -> Pcm:
    """The mains. Its words were "fine", and of one three times softer "hmm"."""
    return (FILLERS["hum"](round(seconds * MIC_RATE_HZ)) * 350).astype(np.int16)


def noise(seconds: float, rms: float) -> Pcm:
    return np.random.default_rng(3).normal(0, rms, int(seconds * MIC_RATE_HZ)).astype(np.int16)


def test_a_request_is_heard_as_it_is_spoken(ears: Ears, request_spoken: Pcm) -> None:
    chunks = hear(ears, list(pieces(request_spoken)))
    assert chunks[-1] == Transcript("say the word garlic", final=True, understood=True, confident=True, complete=True)
    partial = [chunk for chunk in chunks[:-1] if not chunk.final]
    assert len(partial) == len(chunks) - 1 > 0
    assert any("say" in chunk.text for chunk in partial)


def test_half_a_request_is_not_taken_for_a_whole_one(ears: Ears, request_spoken: Pcm) -> None:
    """Though the search is made to end in one: "are you a real program or a" became "… or a robot"."""
    voiced = np.flatnonzero(np.abs(request_spoken) > 600)
    for share in (0.3, 0.5):
        half = request_spoken[: voiced[0] + round(share * (voiced[-1] - voiced[0]))]
        assert hear(ears, list(pieces(np.concatenate([half, noise(0.15, 3)]))))[-1].complete is False


def test_a_request_whose_last_word_is_not_drawn_out_is_not_taken_for_a_whole_one(
    ears: Ears, request_spoken: Pcm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of "from" was heard as "eight", for 90 ms, where "eighteen" followed."""
    assert hear(ears, list(pieces(request_spoken)))[-1].complete is True
    monkeypatch.setattr(nano_ears, "LAST", 200)
    last = hear(ears, list(pieces(request_spoken)))[-1]
    assert (last.text, last.complete) == ("say the word garlic", False)


def test_the_shortest_request_needs_no_silence_around_it(ears: Ears, recordings: list[Recording]) -> None:
    """Committed by hand, right after the last sample of the voice and before there was a first mean."""
    pcm = next(r.pcm for r in recordings if r.text == "okay bye")
    start = int(np.flatnonzero(np.abs(pcm) > 600)[0])
    chunks = hear(ears, list(pieces(pcm[start : start + FIRST * 3 // 4])))
    assert [chunk.text for chunk in chunks] == ["okay"]


def test_requests_are_understood_and_other_speech_is_not(ears: Ears, recordings: list[Recording]) -> None:
    inside = [r for r in recordings if r.expect is not None][5::61]
    outside = [r for r in recordings if r.expect is None][4::16]
    assert {r.voice for r in inside} == {"slt", "awb", "kal16"}
    assert sum(alone(ears, r).right for r in inside) >= len(inside) - 1
    assert sum(alone(ears, r).right for r in outside) >= len(outside) - 1


def test_without_the_phones_other_speech_becomes_a_command(
    ears: Ears, recordings: list[Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(nano_ears, "DOUBT", -math.inf)
    outside = [r for r in recordings if r.expect is None][4::16]
    assert sum(alone(ears, r).heard != "" for r in outside) >= len(outside) - 1


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_part_of_the_evaluation_set(ears: Ears, recordings: list[Recording]) -> None:
    """The bar holds for a part of it: nine in ten requests answered rightly, nine in ten of the others refused.

    All of it takes minutes: ``python -m engine.training.nano.eval_ears``.
    """
    inside = [alone(ears, r).right for r in [r for r in recordings if r.expect is not None][::12]]
    outside = [alone(ears, r).right for r in [r for r in recordings if r.expect is None][::5]]
    assert (len(inside), len(outside)) == (22, 10)
    assert np.mean(inside) >= 0.9
    assert np.mean(outside) >= 0.9


def test_in_noise_the_net_makes_requests_heard(
    ears: Ears, recordings: list[Recording], monkeypatch: pytest.MonkeyPatch
) -> None:
    """At 10 dB these are heard; if what the net gets went past it whole, they were not."""
    said = ("heads or tails", "you are kind nano", "you are so kind nano")
    pause = np.zeros(MIC_RATE_HZ * 2 // 5, np.int16)
    noisy = [
        replace(r, pcm=with_noise(np.concatenate([r.pcm, pause]), 10))
        for r in [next(r for r in recordings if r.text == text) for text in said]
    ]
    assert sum(alone(ears, r).right for r in noisy) >= 2
    monkeypatch.setattr(nano_hush, "KEPT", 1.0)
    assert not any(alone(ears, r).right for r in noisy[:2])


@pytest.mark.parametrize(
    "pcm",
    [
        noise(0, 1), np.zeros(1, np.int16), np.zeros(2 * MIC_RATE_HZ, np.int16), noise(2, 30), noise(2, 2000), tones(2),
        np.full(MIC_RATE_HZ, -32768, np.int16), noise(0.05, 3000), hum(4),
    ],
    ids=["nothing", "a sample", "silence", "quiet noise", "noise", "music", "rail", "a click", "hum"],
)  # fmt: skip
def test_what_is_no_speech_is_not_understood(ears: Ears, pcm: Pcm) -> None:
    (*_, last) = hear(ears, [pcm])
    assert (last.text, last.final, last.understood) == ("", True, False)
    assert (last.confident, bool(last.complete)) == (False, False)


def test_the_words_depend_on_the_samples_only(ears: Ears, request_spoken: Pcm, recordings: list[Recording]) -> None:
    """Not on how they are cut, on what was heard before, or on a request that was aborted half-way."""
    in_pieces = hear(ears, list(pieces(request_spoken)))[-1]
    aborted = req_at(ears, slot=1)
    aborted.pending.append(recordings[0].pcm)
    list(steps(ears, aborted))
    cuts = sorted(random.Random(1).sample(range(len(request_spoken)), 7))
    assert hear(ears, np.split(request_spoken, cuts), slot=1)[-1] == in_pieces
    assert hear(ears, [request_spoken], slot=2)[-1] == in_pieces


def test_how_surely_something_was_heard_does_not_depend_on_who_was_heard_before(
    ears: Ears, monkeypatch: pytest.MonkeyPatch, recordings: list[Recording]
) -> None:
    """pocketsphinx goes on with the noise that it has estimated, into the next utterance."""
    margins = list[float]()
    margin = ears._margin
    monkeypatch.setattr(ears, "_margin", lambda *args: margins.append(margin(*args)) or margins[-1])
    ears._free[:] = [ears._search()]
    for pcm in (recordings[0].pcm, noise(2.0, 3000), recordings[0].pcm):
        hear(ears, [pcm])
    first, _, again = margins
    assert math.isfinite(first)
    assert again == first


def test_how_surely_something_was_heard_does_not_depend_on_how_busy_the_machine_is(
    ears: Ears, monkeypatch: pytest.MonkeyPatch, recordings: list[Recording]
) -> None:
    """A step that comes late finds more speech: a replay of the call answered otherwise than the call."""
    margins = list[float]()
    margin = ears._margin
    monkeypatch.setattr(ears, "_margin", lambda *args: margins.append(margin(*args)) or margins[-1])
    for recording in recordings[::40]:
        for rows in ([recording.pcm], list(pieces(recording.pcm)), np.array_split(recording.pcm, 5)):
            hear(ears, rows)
        assert margins[-3] == margins[-2] == margins[-1]


@pytest.mark.parametrize(("noise", "latest_ms", "share"), [(3, 0, 0.45), (400, 100, 0.8)])
def test_no_search_starts_over_between_the_last_word_and_the_answer(
    recordings: list[Recording], noise: int, latest_ms: float, share: float
) -> None:
    """It takes a tenth of what was said. In noise it is worth that, and is under way when the answer is begun."""
    rng, late_ms = np.random.default_rng(0), list[float]()
    for recording in recordings[::20]:
        utterance, begun = NanoUtterance(), 0
        pcm = np.concatenate([np.zeros(4_800), recording.pcm, np.zeros(8_000)]) + rng.normal(
            0, noise, 12_800 + len(recording.pcm)
        )
        for piece in pieces(np.clip(pcm, -32768, 32767).astype(np.int16)):
            utterance.push(piece)
            if utterance.stale:
                utterance.stale, begun = False, len(utterance)
        late_ms.append((begun - utterance.voice_end) * 1000 / MIC_RATE_HZ)
        assert utterance.basis >= min(MEAN_REACH, utterance.voice_end * share)
    assert len(late_ms) > 10
    assert max(late_ms) <= latest_ms


def test_a_step_is_bounded_whatever_comes_at_once(ears: Ears, request_spoken: Pcm) -> None:
    req = req_at(ears)
    req.pending.append(request_spoken)
    before = 0
    while req.ready:
        ears.step([req])
        assert req.state.searched - before <= PIECE
        before = req.state.searched
    assert before == len(req.state.utterance)


def test_users_who_begin_at_once_begin_one_step_after_the_other(
    ears: Ears, request_spoken: Pcm, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Eight decoders loaded in one step held the worker up for longer than it may be silent: it was given up."""
    begun, start_over = list[int](), Ears._start_over

    def counted(self: Ears, req: StageRequest, hearing: Any) -> None:
        begun.append(req.slot)
        start_over(self, req, hearing)

    monkeypatch.setattr(Ears, "_start_over", counted)
    reqs = [req_at(ears, slot) for slot in range(3)]
    for req in reqs:
        req.pending.append(request_spoken)
        req.ended = True
    heard: dict[int, str] = {}
    while waiting := [req for req in reqs if req.ready]:
        before = len(begun)
        for req, chunks in zip(waiting, ears.step(waiting), strict=True):
            assert not isinstance(chunks, Exception)
            if chunks:
                heard[req.slot] = only(Transcript, chunks)[-1].text
        assert len(begun) - before <= 1
    assert sorted(begun) == [0, 1, 2]
    assert heard == dict.fromkeys(range(3), "say the word garlic")


def test_two_users_are_heard_at_once(ears: Ears, recordings: list[Recording]) -> None:
    both = recordings[1], recordings[4]
    reqs = [req_at(ears, slot) for slot in range(2)]
    said: dict[int, list[Transcript]] = {0: [], 1: []}
    for req, recording in zip(reqs, both, strict=True):
        req.pending.extend(pieces(recording.pcm))
        req.ended = True
    while any(req.ready for req in reqs):
        ready = [req for req in reqs if req.ready]
        for req, chunks in zip(ready, ears.step(ready), strict=True):
            assert not isinstance(chunks, Exception)
            said[req.slot] += only(Transcript, chunks)
    assert [said[slot][-1].text for slot in (0, 1)] == [recording.text for recording in both]


def test_decoders_are_used_again(ears: Ears, request_spoken: Pcm) -> None:
    for slot in range(6):
        hear(ears, [request_spoken], slot)
    for slot in range(6):
        req_at(ears, slot)
    assert len(ears._free) <= 3  # a third was made when two were held by the tests above


async def test_a_long_recording_is_taken_piece_by_piece(ears: Ears) -> None:
    async def inputs() -> AsyncIterator[Chunk]:
        yield Speech(np.zeros(2 * ROW + 7, np.int16))

    rows = [row async for row in ears.adapt(req_at(ears), inputs())]
    assert [len(row) for row in rows] == [ROW, ROW, 7]


@pytest.mark.parametrize(
    "silence",
    # What three seconds of a noise ahead would harm, eight seconds of it harm as well: the shorter ones are the
    # evaluation's business.
    [s for s in silences() if s.below_db != 30 and (s.ahead_s != 3 or s.filler == "zeros")],
    ids=lambda silence: silence.name,
)
def test_silence_around_and_between_the_words_changes_none_of_them(
    ears: Ears, spoken_apart: Split, silence: Silence
) -> None:
    """With three seconds of it ahead of the words nothing was understood; between them it was a part of a word."""
    recording = replace(spoken_apart.recording, pcm=silence.around(spoken_apart))
    assert alone(ears, recording).heard == spoken_apart.heard == "nano tell me one times two"


def test_clicks_ahead_of_the_words_change_none_of_them(ears: Ears, request_spoken: Pcm) -> None:
    clicks = np.zeros(2 * MIC_RATE_HZ, np.int16)
    clicks[:: MIC_RATE_HZ // 3] = 30_000
    assert hear(ears, [clicks, request_spoken])[-1].text == "say the word garlic"


def test_half_a_minute_is_no_request_and_not_searched_further(ears: Ears, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nano_utterance, "LONGEST", MIC_RATE_HZ)
    req = req_at(ears)
    req.pending.append(tones(5))
    req.ended = True
    chunks = list(steps(ears, req))
    assert not chunks[-1].understood
    assert req.state.searched <= MIC_RATE_HZ


@pytest.mark.parametrize("words", ["right", "exactly", "hold on", "wait"])
def test_what_is_said_over_an_answer_is_no_request(ears: Ears, words: str) -> None:
    """Flite's slt, which taught them nothing: a listener's words, and what interrupts."""
    pcm, _ = soundfile.read(ASIDE / f"{words.replace(' ', '_')}.ogg", dtype="int16")
    *_, last = hear(ears, list(pieces(np.asarray(pcm, np.int16))))
    assert (last.text, last.confident) == (words, True)


def test_missing_weights_are_said(tmp_path: Path) -> None:
    with pytest.raises(WeightsError, match="phones"):
        Ears(StageConfig(weights=tmp_path))


def test_the_automaton_takes_what_the_templates_say_and_nothing_else() -> None:
    automaton, rng = requests_automaton(), random.Random(2)
    for words in chain.from_iterable(aside.strip("()").split("|") for aside in ASIDES.values()):
        assert automaton.accepts(words.split()), words
    for _ in range(500):
        request = sample_request(rng)
        assert automaton.accepts(request.text.split()), request.text
        assert request.expect in meanings(request.text)
        said = sample_heard(rng)
        assert automaton.accepts(said.split()), said
    eval_folder = Path(nano_ears.__file__).parents[3] / "training" / "nano" / "eval"
    for request in read_requests(eval_folder / "spoken_out_of_domain.txt"):
        assert not automaton.accepts(request.text.split())
        assert meanings(request.text) == []


def test_the_stored_grammar_is_the_one_that_the_templates_make() -> None:
    """Else: ``python -m engine.training.nano.ears``."""
    stored = (nano_ears.WEIGHTS / "ears" / "requests.fsg").read_text()
    made = requests_automaton().as_fsg("requests", {})
    assert _arcs(stored) == _arcs(made)


def _arcs(fsg: str) -> list[tuple[str, ...]]:
    """From, to and word of each transition, without the weights."""
    return [(m[1], m[2], m[3]) for m in re.finditer(r"^TRANSITION (\d+) (\d+) \S+ ?(\S*)$", fsg, re.MULTILINE)]
