"""The native families against the rules of their transitions (rows 3, 4 and 7): the same random payloads make the same.

The rules are held against the released builders (`test_released.py`); so are the families then, but for what each test
names: payloads that no stage of ours makes.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, Iterator, Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from numpy.typing import NDArray

from engine import stream
from engine.chunk import Chunk, Tensors, Usage
from engine.chunk import Codes as CodeFrames
from engine.core import Request, Sampling
from engine.errors import EngineError, StageFailed
from engine.worker.codec import Codec
from engine.worker.models.qwen2_5_omni import code2wav as native_codes
from engine.worker.models.qwen2_5_omni.feed import PromptEnd, PromptRows, Qwen2_5TalkerFeed, ReplyRow
from engine.worker.models.qwen2_5_omni.talker import Talker
from engine.worker.models.qwen2_5_omni.thinker import Thinker
from engine.worker.models.qwen3_tts import code2wav as native_frames
from engine.worker.models.qwen3_tts.talker import Recording
from engine.worker.nn.sampling_params import SamplingParams
from engine.worker.omni.answer_writer import AnswerWriter
from engine.worker.omni.prompt import Prompt, TalkerRows
from engine.worker.omni.special_tokens import SpecialTokens
from engine.worker.omni.talker_feed import read
from engine.worker.omni.thinker_state import ThinkerState
from engine.worker.stage_request import StageRequest
from engine.worker.transitions import qwen2_5_omni, qwen3_tts
from tests.engine.worker.transitions.released import Ids, Rng, chosen, given, one_in, pieces

PAYLOADS = 1_000
WIDTH, STOP = 4, 9


def payloads(row: int) -> Iterator[Rng]:
    return (np.random.default_rng([row, k]) for k in range(PAYLOADS))


def request() -> Request:
    return Request(id="r", session="s", messages=(), sampling=Sampling(greedy=True))


async def gathered(items: AsyncGenerator[Any]) -> list[Any]:
    return [item async for item in items]


def together(found: Sequence[Any], width: int = 0) -> Ids:
    return np.concatenate(found) if found else np.zeros((0, width) if width else 0, np.int64)


# --- Qwen2.5-Omni: from the thinker to the talker


class Pieces:
    """Tokens as text, a letter each; some wait for the next one, as a part of a character does."""

    def __init__(self, rng: Rng) -> None:
        self._rng, self._waiting = rng, list[int]()
        self.whole = True

    def feed(self, token: int) -> tuple[str, list[int]]:
        self._waiting.append(token)
        self.whole = not one_in(self._rng, 4)
        return self.flush() if self.whole else ("", [])

    def flush(self) -> tuple[str, list[int]]:
        ids, self._waiting, self.whole = self._waiting, [], True
        return "a" * len(ids), ids


class Net:
    """A thinker's networks that are told what they draw, and which row they make of each token that goes in."""

    def __init__(self, drawn: Sequence[int], rows: NDArray[np.float32]) -> None:
        self._drawn, self._rows = deque(drawn), deque(rows)
        self.reply = torch.zeros(1, WIDTH)

    def write(self, inputs: Sequence[Any]) -> list[int]:
        self.reply[0] = torch.from_numpy(self._rows.popleft())
        return [self._drawn.popleft()]


def thought(rng: Rng, prompt_ids: Ids, drawn: Sequence[int], rows: NDArray[np.float32]) -> list[Chunk]:
    """What the thinker gives: the prompt's rows in pieces, then a token a step."""
    count = len(prompt_ids)
    talker = TalkerRows(np.arange(count), np.zeros((3, count), np.float32), prompt_ids)
    prompt = Prompt(prompt_ids, np.zeros((3, count), np.float32), prompt_ids, talker)
    thinker: Any = object.__new__(Thinker)
    thinker.net = Net(drawn[1:], rows[count:])
    thinker.feed = Qwen2_5TalkerFeed(SpecialTokens(audio=-2, image=-2, video=-2, audio_start=-2, audio_end=-2), True)
    thinker.writer = AnswerWriter(cast(Any, SimpleNamespace(added={})), thinker.feed, {STOP}, resumes=False)
    thinker.source = SimpleNamespace(voices={"one": None}, device=torch.device("cpu"))
    thinker.cache = SimpleNamespace(remember=lambda req: None)
    req = StageRequest(request(), 0, cast(Any, None))
    req.state = ThinkerState(len(drawn), SamplingParams(0, True, 1.0, 1, 1.0), cast(Any, Pieces(rng)), prompt)
    chunks: list[Chunk] = []
    cuts = np.unique([0, *rng.integers(0, count + 1, int(rng.integers(4))), count])
    for start, end in pairwise(cuts.tolist()):
        chunks += thinker._took(req, slice(start, end), rows[start:end])
    chunks += thinker._take(req, drawn[0])
    while not req.done:
        chunks += thinker._take(req, *thinker._write([req]))
    return chunks


@pytest.mark.seed("A2.11", "A2.12")
def test_what_qwen2_5_s_talker_gets_of_its_thinker_is_the_rule_s_conditioning() -> None:
    """Every answer of ours says how it ended, and has drawn an id; a payload without either never comes."""
    finishes = set[str]()
    for rng in payloads(3):
        prompt_ids, drawn = rng.integers(0, 9, int(rng.integers(1, 12))), rng.integers(0, 9, int(rng.integers(1, 9)))
        drawn[-1] = chosen(rng, STOP, drawn[-1])
        rows = rng.random((len(prompt_ids) + len(drawn) - 1, WIDTH), np.float32)
        chunks = thought(rng, prompt_ids, drawn.tolist(), rows)
        found = [read(one, Talker.structs()) for one in chunks if isinstance(one, Tensors)]
        (usage,) = [one for one in chunks if isinstance(one, Usage)]
        finishes.add(usage.finish)
        steps = [qwen2_5_omni.ThinkerStep(prompt_ids=prompt_ids)]
        steps += [qwen2_5_omni.ThinkerStep(hidden=piece) for piece in pieces(rng, rows)]
        steps += [qwen2_5_omni.ThinkerStep(drawn_ids=piece) for piece in pieces(rng, drawn)]
        (ours,) = given(qwen2_5_omni.TalkerConditioning(), [*steps, usage])
        prompt = together([one.hidden for one in found if isinstance(one, PromptRows)], WIDTH)
        reply = [one.hidden[None] for one in found if isinstance(one, ReplyRow)]
        assert prompt.tolist() == ours.prompt.tolist()
        assert together(reply, WIDTH).tolist() == ours.answer.tolist()
        assert [one.count for one in found if isinstance(one, PromptEnd)] == [len(ours.prompt_ids)]
    assert finishes == {"stop", "length"}


@pytest.mark.seed("A2.12")
def test_fewer_rows_than_the_prompt_has_are_refused_by_both() -> None:
    req = StageRequest(request(), 0, cast(Any, None))
    req.state = SimpleNamespace(names=[1])
    with pytest.raises(StageFailed, match="received only 1 of the prompt's 2 rows"):
        Talker.lead(cast(Any, None), req, PromptEnd(2, 0.0))
    with pytest.raises(StageFailed, match="1 hidden rows for a prompt of 2"):
        given(
            qwen2_5_omni.TalkerConditioning(),
            [qwen2_5_omni.ThinkerStep(np.ones((1, 4), np.float32), None, np.array([1, 2]))],
        )


# --- Qwen2.5-Omni: from the talker to code2wav


def coded(frames: Sequence[Ids]) -> Ids:
    """The codes that code2wav takes of a talker's ids, in its own pieces."""
    marks = {qwen2_5_omni.PAD_ID, qwen2_5_omni.START_ID, qwen2_5_omni.END_ID}
    stage: Any = SimpleNamespace(book=qwen2_5_omni.PAD_ID, silent=marks)
    chunks = [CodeFrames(piece.astype(np.int16)[:, None], 0) for piece in frames]
    items = native_codes.Code2Wav.adapt(stage, StageRequest(request(), 0, cast(Any, None)), stream.of(chunks))
    return together([item.codes for item in asyncio.run(gathered(items))])


@pytest.mark.seed("A2.13", "A4.9")
def test_the_codes_that_qwen2_5_s_code2wav_takes_are_the_rule_s() -> None:
    """Any other id beyond the book, which the rule leaves out, ends the request here: no talker of ours draws one."""
    reached = set[bool]()
    for rng in payloads(4):
        ids = rng.integers(8_286, 8_295, int(rng.integers(0, 12)))
        ids[rng.random(len(ids)) < 0.1] = qwen2_5_omni.PLACEHOLDER
        ids = np.concatenate([ids, chosen(rng, [], [8_294], [-1] * int(rng.integers(1, 4)))]).astype(np.int64)
        (ours,) = given(qwen2_5_omni.codes(), [qwen2_5_omni.TalkerStep(piece) for piece in pieces(rng, ids)])
        assert coded(pieces(rng, ids)).tolist() == ours.codes.tolist()
        reached.add(len(ours.codes) > int(np.count_nonzero((ids >= 0) & (ids < qwen2_5_omni.PAD_ID))))
    assert reached == {True, False}, "placeholders at the end, and none"
    with pytest.raises(StageFailed, match="codes must be from 0 to 8291"):
        coded([np.array([5, 9_000])])


# --- Qwen3-TTS: from the talker to code2wav


class Cut:
    """A chunk policy: windows of one size."""

    def __init__(self, size: int) -> None:
        self._size = size

    def size(self, _count: int) -> int:
        return self._size

    def hurry(self) -> bool:
        return False


def decoded(reference: Ids | None, frames: Ids, size: int) -> tuple[Ids, int]:
    """The frames that code2wav decodes, and of how many the sound is left out: a reference alone is not voiced."""
    stage: Any = SimpleNamespace(books=Codec(qwen3_tts.BOOKS, qwen3_tts.BOOK, 1_920))
    stage._recording = lambda chunk: native_frames.Code2Wav._recording(stage, chunk)
    chunks: list[Chunk] = [CodeFrames(frame[None].astype(np.int16), n) for n, frame in enumerate(frames)]
    if reference is not None:
        chunks.insert(0, Tensors.of(Recording(reference.astype(np.int16))))
    req = StageRequest(request(), 0, cast(Any, Cut(size)))
    items = asyncio.run(gathered(native_frames.Code2Wav.adapt(stage, req, stream.of(chunks))))
    before = [item.frames for item in items if isinstance(item, Recording)]
    windows = [item.codes for item in items if not isinstance(item, Recording)]
    if not windows:
        return np.zeros((0, qwen3_tts.BOOKS), np.int64), 0
    return together([*before, *windows]), sum(map(len, before))


def drawn_frames(rng: Rng, count: int) -> Ids:
    return rng.integers(0, qwen3_tts.BOOK, (count, qwen3_tts.BOOKS)) | (np.arange(qwen3_tts.BOOKS) == 0)


@pytest.mark.seed("A2.13", "A2.16")
def test_the_frames_that_qwen3_tts_decodes_are_the_rule_s() -> None:
    """Padding, stops and placeholders, which the rule leaves out, are frames that no talker of ours makes: the mark of
    the end is none, and nothing is padded. What is beyond the books ends the request. A frame of zeros that was drawn
    is voiced."""
    reached = set[tuple[bool, bool]]()
    for rng in payloads(7):
        frames = drawn_frames(rng, int(rng.integers(0, 12)))
        reference = drawn_frames(rng, int(rng.integers(1, 6))) if one_in(rng, 2) else None
        steps = [qwen3_tts.Frames(reference=reference), *(qwen3_tts.Frames(one) for one in pieces(rng, frames))]
        (ours,) = given(qwen3_tts.whole(), steps)
        codes, context = decoded(reference, frames, int(rng.integers(1, 9)))
        assert codes.tolist() == ours.codes.tolist()
        assert context == ours.context
        reached.add((reference is None, len(frames) > 0))
    assert len(reached) == 4, "with a reference and without, with an answer and without"
    for junk in (2_150, -1):
        with pytest.raises(EngineError, match="codes must be from 0 to 2047"):
            decoded(None, np.full((1, 16), junk), 1)
    zeros = np.zeros((1, 16), np.int64)
    assert len(decoded(None, zeros, 1)[0]) == 1
    (ours,) = given(qwen3_tts.whole(), [qwen3_tts.Frames(zeros)])
    assert len(ours.codes) == 0
