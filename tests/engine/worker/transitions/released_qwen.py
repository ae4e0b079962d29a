"""Random payloads of Qwen3-Omni, Qwen2.5-Omni and Qwen3-TTS, and what they are to be equal to.

Qwen3-Omni is a family of ours: its own code cuts the rows for the talker, and the frames for code2wav.
"""

from __future__ import annotations

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import numpy as np
import pytest

from engine import stream
from engine.chunk import Codes, Usage
from engine.core import Request
from engine.errors import ConfigError, StageFailed
from engine.worker.codec import Codec
from engine.worker.models.qwen3_omni.feed import Qwen3TalkerFeed
from engine.worker.models.qwen3_omni.talker_net import LEAD
from engine.worker.omni.prompt import TalkerRows
from engine.worker.stage_request import StageRequest
from engine.worker.transitions import qwen2_5_omni, qwen3_tts
from tests.engine.worker.transitions.released import (
    REFUSED,
    REPEATED,
    Case,
    Ids,
    Rng,
    chosen,
    equal,
    given,
    once,
    one_in,
    pieces,
    same_windows,
)

# --- Qwen3-Omni


TURN, SYSTEM, USER, ASSISTANT = 151_644, 8_948, 872, 77_091


def _chat(rng: Rng) -> Ids:
    """A prompt's ids: turns of every role, the last of them the assistant's, which is to be answered in."""
    turns = [chosen(rng, SYSTEM, USER, USER, ASSISTANT, 9) for _ in range(rng.integers(0, 4))]
    return np.concatenate([[TURN, role, *rng.integers(10, 99, int(rng.integers(5)))] for role in [*turns, ASSISTANT]])


def qwen3_omni_thought(rng: Rng) -> Case:
    prompt_ids, drawn_ids = _chat(rng), rng.integers(10, 99, int(rng.integers(1, 6)))
    stopped = not one_in(rng, 3)
    ids = np.concatenate([prompt_ids, drawn_ids])
    rows = rng.random((len(ids), 4), np.float32) if not one_in(rng, 20) else np.zeros((0, 4), np.float32)
    shape = chosen(rng, *["plain"] * 4, "hidden", "no marks", "marks", "no all", "none", "empty")

    def check(theirs: Any) -> str:
        indices, lead = _user_turns(prompt_ids.tolist())
        if theirs is None:
            assert shape in ("none", "empty")
            return "no rows: no payload"
        embeddings, hidden, all_ids, prompt, length = theirs
        assert (all_ids, prompt) == (ids.tolist(), prompt_ids.tolist())
        assert length == len(indices) + LEAD, "rows of the user's turns, and those of the talker's own"
        assert lead == np.flatnonzero(prompt_ids == TURN)[-1], "where the assistant's turn begins"
        equal(hidden, 2 * embeddings)
        if not len(rows):
            return "no rows: handed on there"
        equal(embeddings, rows[: len(prompt_ids) + len(drawn_ids[:-1])])
        return (
            ""
            if stopped
            else "an answer cut at its length: its last row is cut there, spoken here as transformers does"
        )

    return Case(("qwen3_omni_thought", rows, 2 * rows, prompt_ids.tolist(), drawn_ids.tolist(), shape), check)


def _user_turns(ids: list[int]) -> tuple[list[int], int]:
    """The rows of a prompt that our talker takes, and where its own turn begins."""
    marks = SimpleNamespace(turn=TURN, user=USER)
    return Qwen3TalkerFeed._user_turns(cast(Any, SimpleNamespace(marks=marks)), ids)


def qwen3_omni_thoughts(rng: Rng) -> Case:
    """Rows come one prompt piece after the other, then one a token."""
    prompt_ids = _chat(rng)
    drawn = int(rng.integers(0, 8))
    rows = rng.random((len(prompt_ids) + drawn, 4), np.float32)
    sizes = [len(piece) for piece in pieces(rng, rows[: len(prompt_ids)]) if len(piece)] + [1] * drawn
    end = chosen(rng, "nothing", "text", "layers")
    for _ in range(rng.integers(3)):
        sizes.insert(int(rng.integers(len(sizes))), 0)
    strange = one_in(rng, 20) and drawn > 2
    resumable = one_in(rng, 4) and not strange

    def check(theirs: Any) -> str:
        if strange:
            return "two rows at once in the answer: they do not come here, and are dropped there"
        whole = [rows_ for rows_, _, _ in theirs]
        equal(np.concatenate(whole) if whole else rows[:0], rows[: sum(map(len, whole))])
        assert [prompt for _, prompt, _ in theirs] == [True, *[False] * (len(theirs) - 1)][: len(theirs)]
        assert not whole or len(whole[0]) > len(prompt_ids) or theirs[0][2], "all of the prompt, and one row more"
        indices, _ = _user_turns(prompt_ids.tolist())
        ours = TalkerRows(np.array(indices, np.int64), np.zeros((3, len(indices)), np.float32), np.array(indices))
        cuts = np.cumsum([0, *sizes])
        found = [ours.indices[ours.within(slice(a, b))] for a, b in itertools.pairwise(cuts)]
        equal(np.concatenate(found), indices)
        return ""

    if strange:
        sizes[-2:] = [2]
    return Case(("qwen3_omni_thoughts", rows, 2 * rows, prompt_ids.tolist(), sizes, end, resumable), check)


class Cut:
    """A chunk policy: a first size, and another one."""

    def __init__(self, first: int, size: int) -> None:
        self.sizes = (first, size)

    def size(self, count: int) -> int:
        return self.sizes[count > 0]

    def hurry(self) -> bool:
        return False


def _windows(frames: Ids, first: int, size: int) -> list[Ids]:
    """The windows that code2wav gets of a talker's frames."""
    chunks = [Codes(frame[None].astype(np.int16), n) for n, frame in enumerate(frames)]
    req = StageRequest(Request(id="r", session="s", messages=()), 0, Cut(first, size))

    async def gathered() -> list[Ids]:
        return [window.codes async for window in Codec(16, 2_048, 1_920).windows(req, stream.of(chunks))]

    return asyncio.run(gathered())


def qwen3_omni_codes(rng: Rng) -> Case:
    frames = _frames(rng, int(rng.integers(0, 30)))
    rows = _with_junk(rng, frames, chosen(rng, *[0] * 8, *[0.2] * 4, 1))
    rows[~rows.any(axis=1)] = -1  # frames of zeros are told by their ids there
    drawn = np.where((rows[:, 0] >= 0) & (rows[:, 0] < 2_048), rows[:, 0], chosen(rng, 2_150, 4_198, -1))
    ahead = int(rng.integers(3)) if one_in(rng, 4) else 0  # rows of the prompt, which no id belongs to
    shape = chosen(rng, *["flat"] * 16, *["nested"] * 12, "as list", "none", "empty", "list", "3-D")
    ids = [*drawn.tolist()] if not one_in(rng, 20) else []
    ids = [str(one) if one_in(rng, 200) else one for one in ids]
    if one_in(rng, 20) and ids:
        ids[0] = "x"
    sent = np.concatenate([_frames(rng, ahead + (shape == "3-D")), rows])
    kept = rows[[str(one).isdigit() and int(one) < 2_048 for one in ids] if ids else [False] * len(rows)]
    kept = kept[((kept >= 0) & (kept < 2_048)).all(axis=1)]

    def check(theirs: Any) -> str:
        if shape == "3-D":
            with pytest.raises(StageFailed):
                _windows(sent[:, None], 4, 25)
            return "codes of another shape: refused here, handed on there"
        windows = _windows(kept[:0] if shape in ("none", "empty", "list") else kept, 4, 25)
        if theirs is None:
            assert not windows or not ids
            return "no codes: no window, and the end, here; nothing there"
        equal(np.concatenate(windows).T.reshape(-1), theirs)
        return (
            ""
            if len(kept) == len(sent)
            else "stops, placeholders and rows of the prompt: made by nobody here, left out there"
        )

    return Case(("qwen3_omni_codes", sent, ids, shape), check)


def qwen3_omni_frames(rng: Rng) -> Case:
    first, size, left = chosen(rng, (4, 25, 25), (1, 5, 7), (0, 10, 25), (0, 25, 25))
    names = ("initial_codec_chunk_frames", "codec_chunk_frames", "codec_left_context_frames")
    config = dict(zip(names, (first, size, left), strict=True))
    config = None if (first, size) == (0, 25) else {"extra": config} if one_in(rng, 2) else config
    frames = _frames(rng, int(rng.integers(0, 70)))
    steps: list[Any] = [frame[None] for frame in frames]
    stop = _frames(rng, 1)
    stop[0, 0] = 2_150
    for _ in range(rng.integers(4)):
        steps.insert(
            int(rng.integers(len(steps) + 1)), chosen(rng, "nothing", "text", "list", "no rows", "zeros", stop)
        )
    end = chosen(rng, "with the last", "with the last", "nothing", "zeros")
    stops = chosen(rng, {"stop_token_ids": [2_150]}, {"stop_token_id": 2_150})

    def check(theirs: Any) -> str:
        ours = _windows(frames, first or size, size)
        found = [codes.reshape(16, -1).T[context:] for codes, context, _ in theirs]
        ended = end == "with the last" and len(steps) > 0 and not isinstance(steps[-1], str) and steps[-1] is not stop
        for one, other in zip(ours, found, strict=False):
            equal(one, other)
        if ended:
            assert len(ours) == len(found)
            assert theirs[-1][2]
        else:
            assert len(found) == len(ours) - (
                len(ours) > 0 and len(ours[-1]) < (size if len(ours) > 1 else first or size)
            )
        for n, (_, context, _) in enumerate(theirs):
            assert context <= sum(map(len, ours[:n])), "no more context than there is"
        return "" if ended else "the end comes without a frame: the remainder is voiced here, lost there"

    return Case(("qwen3_omni_frames", steps, config, stops, end), check)


# --- Qwen2.5-Omni


def qwen2_5_thought(rng: Rng) -> Case:
    prompt_ids, drawn_ids = rng.integers(0, 9, int(rng.integers(0, 6))), rng.integers(0, 9, int(rng.integers(0, 6)))
    computed = max(0, len(prompt_ids) + len(drawn_ids) + int(rng.integers(-3, 2)))
    hidden = rng.random((computed, 4), np.float32)
    shape = chosen(rng, *["plain"] * 6, "all ids", "status as text", "none", "empty")
    stops = {int(one) for one in rng.integers(0, 9, 3)}
    eos = int(rng.integers(9))
    named = {
        "stop_token_ids": [*stops, "x"],
        "eos_token_id": eos,
        "all_stop_token_ids": [8, None],
        "_eos_token_id": None,
    }
    ignored = one_in(rng, 2)
    finish = chosen(
        rng,
        None,
        "FINISHED_STOPPED",
        "FINISHED_LENGTH_CAPPED",
        {},
        {**named, "ignore_eos": ignored},
        {"ignore_eos": True},
    )
    if isinstance(finish, dict) and "eos_token_id" in finish:
        stops |= set() if ignored else {eos, 8}
    else:
        stops = set()
    if shape in ("none", "empty"):
        hidden = hidden[:0]

    def check(theirs: Any) -> str:
        steps: list[msgspec.Struct] = [qwen2_5_omni.ThinkerStep(prompt_ids=prompt_ids)]
        steps += [qwen2_5_omni.ThinkerStep(hidden=piece) for piece in pieces(rng, hidden)]
        steps += [qwen2_5_omni.ThinkerStep(drawn_ids=piece) for piece in pieces(rng, drawn_ids)]
        steps += [Usage(finish="stop" if finish == "FINISHED_STOPPED" else "length")] if isinstance(finish, str) else []
        try:
            (ours,) = given(qwen2_5_omni.TalkerConditioning(stops), steps)
        except StageFailed:
            assert theirs is None or not len(hidden)
            return "fewer hidden rows than the prompt has ids, or none: refused here, no payload there"
        if theirs is None:
            assert not len(ours.answer)
            return "nothing was drawn but a stop: the prompt's rows here, none there"
        for one, other in zip((ours.prompt, ours.answer, ours.prompt_ids, ours.drawn_ids), theirs, strict=True):
            equal(one, other)
        return ""

    return Case(("qwen2_5_thought", hidden, prompt_ids.tolist(), drawn_ids.tolist(), finish, shape), check)


def qwen2_5_codes(rng: Rng) -> Case:
    ids = rng.integers(8_280, 8_296, int(rng.integers(0, 12)))
    ids[rng.random(len(ids)) < 0.1] = -1
    ids = np.concatenate([ids, chosen(rng, [], [8_294], [-1] * int(rng.integers(1, 4)))]).astype(np.int64)
    steps = [qwen2_5_omni.TalkerStep(piece) for piece in pieces(rng, ids)]

    def check(theirs: Any) -> str:
        (ours,) = given(qwen2_5_omni.codes(), steps)
        equal(ours.codes, [] if theirs is None else theirs)
        return "no codes: an empty payload here, none there" if theirs is None else ""

    return Case(("qwen2_5_codes", ids.tolist() or chosen(rng, [], None)), check)


# --- Qwen3-TTS


def _frames(rng: Rng, n: int, books: int = 16) -> Ids:
    return rng.integers(0, 2_048, (n, books)) | (np.arange(books) == 0)  # none is all zeros


def _with_junk(rng: Rng, frames: Ids, share: float) -> Ids:
    """The same, and some frames that are no sound: padding, a placeholder, a stop."""
    frames = frames.copy()
    for n in np.flatnonzero(rng.random(len(frames)) < share):
        frames[n] = chosen(rng, frames[n] * 0, -1, np.where(np.arange(16) == 0, 2_150, frames[n]))
    return frames


def qwen3_tts_whole(rng: Rng) -> Case:
    codes = _with_junk(rng, _frames(rng, int(rng.integers(0, 12))), chosen(rng, *[0] * 4, 0.3, 0.3, 1))
    sounding = codes[((codes >= 0) & (codes < 2_048)).all(axis=1) & codes.any(axis=1)]
    drawn = int(rng.integers(2, 9)) if one_in(rng, 3) and len(sounding) else len(codes) + 1
    reference = _frames(rng, int(rng.integers(1, 5))) if one_in(rng, 2) else None
    how, most = chosen(rng, "", "flat", "list", "odd", "3-D", "no list"), int(rng.integers(1, 6))
    length = chosen(rng, (most, ""), (most, "tensor"), (None, ""), (0, ""), (-3, ""), (9, "no tensor"))
    shape = chosen(rng, *["flat"] * 4, *["nested"] * 4, "none", "empty", "list", "meta", "codes", "3-D")
    lost = shape in ("none", "empty", "list")
    known = None if reference is None or how in ("odd", "3-D", "no list") or shape == "codes" else reference
    if known is not None and length[0] == most and shape != "meta":
        known = known[:most]

    def check(theirs: Any) -> str:
        if shape == "3-D":
            with pytest.raises(StageFailed):
                given(qwen3_tts.whole(), [qwen3_tts.Frames(codes[None])])
            return "codes of another shape: refused here, handed on there"
        answer = codes[:0] if lost else codes
        cause = "no sound: an empty payload here, none there" if theirs is None else ""
        if drawn - 1 < len(sounding) and not lost:
            answer, cause = (
                sounding[len(sounding) - (drawn - 1) :],
                "more frames than were drawn: made by nobody here, cut there",
            )
        steps = [qwen3_tts.Frames(reference=known), *(qwen3_tts.Frames(piece) for piece in pieces(rng, answer))]
        (ours,) = given(qwen3_tts.whole(), steps)
        if theirs is None:
            assert (len(ours.codes), ours.context) == (0, 0)
            return cause
        equal(ours.codes.T.reshape(-1), theirs)
        assert ours.context == (0 if known is None else len(known))
        return cause

    return Case(("qwen3_tts_whole", codes, (reference, how), length, [0] * drawn, shape), check)


def qwen3_tts_stream(rng: Rng) -> Case:
    sizes = chosen(
        rng,
        (25, 25, 1, 72),
        (25, 72, 4, 0),
        (10, 7, 3, 5),
        (4, 4, 9, 2),
        (2, 3, 0, 0),
        (6, 5, 0, 3),
        None,
        (0, 1, 1, 1),
        (5, -1, 1, 1),
    )
    names = ("codec_chunk_frames", "codec_left_context_frames", "initial_codec_chunk_frames", "ref_code_context_frames")
    config = None if sizes is None else dict(zip(names, sizes, strict=True))
    config = {"extra": config} if config and one_in(rng, 2) else config
    frames = _frames(rng, int(rng.integers(0, 70)))
    words = ("nothing", "text", "zeros", "no rows")
    steps: list[Any] = [frame[None] for frame in frames]
    for _ in range(rng.integers(4)):
        steps.insert(int(rng.integers(len(steps) + 1)), chosen(rng, *words))
    end = chosen(rng, "with the last", *words) if len(steps) else chosen(rng, *words)
    override = chosen(rng, None, None, None, "no state", 0, 2, -1)
    reference = _frames(rng, int(rng.integers(1, 9))) if one_in(rng, 2) else None
    how = chosen(rng, "", "", "flat", "odd", "3-D")
    known = (
        None
        if reference is None or how in ("odd", "3-D") or not len(frames) or isinstance(steps[0], str)
        else reference
    )
    if one_in(rng, 50):
        steps.insert(0, "3-D")

    def check(theirs: Any) -> str:
        windows, first = theirs
        if windows == REFUSED:
            chunk, left, *_ = sizes or (1, 1)
            assert chunk < 1 or left < 0 or override == -1 or steps[0] == "3-D"
            with pytest.raises((ConfigError, StageFailed)):
                _no_frames(1 if override != -1 else override, chunk, left)
            return ""
        chunk, left, initial, most = sizes or (25, 25, 0, 0)
        first = override if override in (0, 2) and override else first or initial or chunk
        stream = qwen3_tts.Qwen3TtsStream(min(first, chunk), chunk, left, most or left)
        said = [qwen3_tts.Frames(reference=known), *(qwen3_tts.Frames(piece) for piece in pieces(rng, frames))]
        ours = [(one.codes, one.context, one.finished) for one in given(stream, said)]
        tail = frames[:0] if known is None else known[-(most or left) :]
        found = [(_restored(one, tail), one[1], one[4]) for one in windows]
        left_over = once(found)
        same_windows(ours, left_over)
        return REPEATED if len(left_over) < len(found) else ""

    return Case(("qwen3_tts_stream", steps, (reference, how), config, end, override), check)


def _no_frames(first: int, chunk: int, left: int) -> None:
    given(qwen3_tts.Qwen3TtsStream(first, chunk, left), [qwen3_tts.Frames(np.ones((1, 1), np.int64))])


def _restored(window: Any, reference: Ids) -> Ids:
    """A window as the released decoder sees it: behind the reference, which comes with the first one and is kept."""
    codes, _, size, included, _ = window
    frames = codes.reshape(16, -1).T if len(codes) else np.zeros((0, 16), np.int64)
    assert size in (0, len(reference))
    return frames if included or not size else np.concatenate([reference, frames])
