"""A family without a model: scripted answers spoken as tones, in the same four stages as the real families.

For tests, for trying clients, and for measuring the engine alone, since its steps compute almost nothing. Answers:

====================  ==================================================================
the user's text       the answer
====================  ==================================================================
``say: XYZ``          XYZ
``long N``            N words
``tool NAME JSON``    a call of the tool NAME, arguments in pieces; more calls after " ; "
``said``              "I said: " and the part of earlier answers that the user heard
``fail``              two words, then StageFailed
``slow``              "late", after 200 ms
(speech)              "I heard S seconds.", or the recognized words
(a tool's result)     "The tool says: " and the result
anything else         "You said: " and the text
====================  ==================================================================

Only the last paragraph of a text counts, because some clients prepend their own instructions. If the request requires a
tool call, any other answer is refused. A codec frame takes 40 ms, and a word ``frames_per_word`` (6) frames. A word is
a tone at constant level from its first frame to the middle of its last one, so word n (from 0) starts at n *
frames_per_word * 40 ms.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from engine.chunk import (
    Audio,
    Checkpoint,
    Chunk,
    Codes,
    Finish,
    Speech,
    Text,
    ToolCall,
    ToolCallDelta,
    Transcript,
    Usage,
    VoiceText,
    kinds,
)
from engine.core import (
    MIC_RATE_HZ,
    SPEAKER_RATE_HZ,
    AudioPart,
    Facets,
    ImagePart,
    Part,
    Pcm,
    Request,
    StageInfo,
    TextPart,
    ToolResultPart,
    Voice,
)
from engine.errors import EngineError, RequestError, StageFailed
from engine.worker.asr.transcribing import pcm_of
from engine.worker.codec import Codec, Window, frames_of, state_due
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest

FRAME_S = 0.04
FRAME_SAMPLES = SPEAKER_RATE_HZ // 25
GAP_SAMPLES = FRAME_SAMPLES // 2  # silence at each word's end, which makes the next onset detectable
TABLE_STEPS = 16  # 220 Hz and the next fifteen semitones


class ScriptEars:
    """Speech recognition stage that reports the length of the user's speech."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return StageInfo(
            takes=kinds(Speech),
            emits=kinds(Transcript),
            feeds=kinds(Transcript),
            slots=config.slots,
            facets=Facets(heard_languages=("en",)),
        )

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)

    def open(self, req: StageRequest) -> None:
        req.state = 0

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Pcm]:
        return pcm_of(inputs)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        return [self._hear(req) for req in reqs]

    def _hear(self, req: StageRequest) -> list[Chunk]:
        if req.pending:
            before = req.state // (MIC_RATE_HZ // 2)
            req.state += len(req.pending.popleft())
            if req.state // (MIC_RATE_HZ // 2) == before:
                return []
            return [Transcript(f"{req.state / MIC_RATE_HZ:.1f}")]
        req.done = True
        return [Transcript(f"{req.state / MIC_RATE_HZ:.1f} seconds", final=True, understood=req.state > 0)]


@dataclass(slots=True)
class ScriptAnswer:
    """State of an answer."""

    words: deque[str]
    """Words that remain to be said."""
    calls: deque[tuple[str, str]] = field(default_factory=deque[tuple[str, str]])
    """Names and arguments of the tool calls that remain."""
    fails: bool = False
    said: int = 0
    """Words that were said."""
    characters: int = 0
    """Characters of these words."""
    called: int = 0
    """Calls that were made."""
    written: int = 0
    """Characters of the next call's arguments that were sent."""


class ScriptThinker:
    """Thinker stage that answers one word per step."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return StageInfo(
            takes=kinds(Transcript),
            emits=kinds(Text, ToolCallDelta, ToolCall, Usage),
            feeds=kinds(Text),
            checkpoints=kinds(Text),
            answers=True,
            slots=config.slots,
            facets=Facets(
                model="script",
                tokenizer="script",
                sees=frozenset({"image"}),
                examples=("say: one two three", "long 12"),
            ),
        )

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        self._step_s = _step_s(config)

    def open(self, req: StageRequest) -> None:
        req.state = ScriptAnswer(deque())

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        transcript = None
        if req.request.hears:
            async for chunk in inputs:
                if isinstance(chunk, Transcript) and chunk.final:
                    transcript = chunk.text
        text = _last_text(req.request)
        if text == "slow":
            await asyncio.sleep(0.2)
        yield f"say: I heard {transcript}." if transcript is not None else text

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        time.sleep(self._step_s)
        return [self._think(req) for req in reqs]

    def _think(self, req: StageRequest) -> list[Chunk] | EngineError:
        answer: ScriptAnswer = req.state
        if req.pending:
            answer = req.state = _answer(req.pending.popleft(), req.request)
            req.needs_input = False
            if req.request.must_call and not answer.calls:
                return RequestError(
                    f"tool_choice: {req.request.tool_choice!r} requires a tool call, but the script makes none."
                )
        if answer.fails and answer.said == 2:
            return StageFailed("the script says that this answer fails")
        if answer.words and answer.said < req.request.max_text_tokens:
            word = answer.words.popleft() + (" " if answer.words else "")
            text = Text(word, answer.characters, (1000 + sum(word.encode()) % 1000,))
            answer.said = answer.said + 1
            answer.characters = text.end
            return [text]
        if answer.calls:
            return [_call(answer, req.request)]
        req.done = True
        return [_usage(req.request, answer)]


def _call(answer: ScriptAnswer, request: Request) -> Chunk:
    """Return the next eight characters of a call's arguments; after the last, the call."""
    (name, arguments), call_id = answer.calls[0], f"call_{answer.called}_{request.id}"
    piece = arguments[answer.written : answer.written + 8]
    if piece:
        answer.written += len(piece)
        return ToolCallDelta(call_id, name, piece)
    answer.calls.popleft()
    answer.called = answer.called + 1
    answer.written = 0
    return ToolCall(call_id, name, arguments)


def _usage(request: Request, answer: ScriptAnswer) -> Usage:
    """Count the tokens of a request and its answer. A word, 40 ms of audio and a picture are one token each."""
    parts = [part for message in request.messages for part in message.parts]
    words = sum(len(part.text.split()) for part in parts if isinstance(part, TextPart))
    audio_tokens = sum(len(part.pcm) * 25 // MIC_RATE_HZ for part in parts if isinstance(part, AudioPart))
    seen = sum(isinstance(part, ImagePart) for part in parts)
    finish: Finish = "tool" if answer.called else "length" if answer.words else "stop"
    return Usage(
        1 + words + audio_tokens + seen, answer.said, audio_tokens=audio_tokens, image_tokens=seen, finish=finish
    )


def _last_text(request: Request) -> str:
    parts = request.messages[-1].parts if request.messages else ()
    results = [part.output for part in parts if isinstance(part, ToolResultPart)]
    transcripts = [part.transcript for part in parts if isinstance(part, AudioPart) and part.transcript is not None]
    if transcripts:
        return f"say: I heard {' '.join(transcripts)}."
    return f"say: The tool says: {' '.join(results)}" if results else _text(parts).rpartition("\n\n")[2]


def _text(parts: Sequence[Part]) -> str:
    return " ".join(part.text for part in parts if isinstance(part, TextPart))


def _answer(text: str, request: Request) -> ScriptAnswer:
    word, _, rest = text.partition(" ")
    match word:
        case "say:":
            return ScriptAnswer(deque(rest.split()))
        case "long" if rest.isdigit():
            return ScriptAnswer(deque(f"word{i}" for i in range(int(rest))))
        case "tool":
            calls = (call.partition(" ") for call in rest.split(" ; "))
            return ScriptAnswer(deque(), deque((name, json_ or "{}") for name, _, json_ in calls))
        case "said":
            answers = (_text(message.parts) for message in request.messages if message.role == "assistant")
            return ScriptAnswer(deque(f"I said: {' '.join(answers)}".split()))
        case "fail":
            return ScriptAnswer(deque(["this", "is", "never", "finished"]), fails=True)
        case "slow":
            return ScriptAnswer(deque(["late"]))
        case _:
            return ScriptAnswer(deque(f"You said: {text}".split()))


@dataclass(slots=True)
class Whistle:
    """State of a spoken answer."""

    words: int = 0
    """Words that were started."""
    left: int = 0
    """Frames that remain of the current word."""
    tone: int = 0
    word_end: int = 0
    """Characters of the answer up to the end of the current word."""
    text_end: int = 0
    """Characters of the answer that have been spoken."""
    frames: int = 0


class ScriptTalker:
    """Talker stage that speaks each word as codec frames of one tone."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return StageInfo(
            takes=kinds(Text, VoiceText),
            feeds=kinds(Codes),
            slots=config.slots,
            checkpoints=kinds(Codes),
            facets=Facets(voices=(Voice("tone", "Tone, a whistle"),), languages=("en",)),
        )

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        self._frames = int(config.options.get("frames_per_word", 6))
        self._step_s = _step_s(config)
        self._request_s = float(config.options.get("request_s", 0.0))  # additional seconds per request of a batch

    def open(self, req: StageRequest) -> None:
        req.state = Whistle(**(req.checkpoint or {}))
        req.needs_input = not req.state.left

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        behind = req.state.words
        async for chunk in inputs:
            if behind:
                behind -= 1
            elif isinstance(chunk, Text | VoiceText):
                yield chunk

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        time.sleep(self._step_s + self._request_s * len(reqs))
        return [self._speak(req) for req in reqs]

    def _speak(self, req: StageRequest) -> list[Chunk]:
        speech: Whistle = req.state
        most = frames_of(req.request.max_audio_s, FRAME_S)
        if not speech.left and req.pending:
            word: Text | VoiceText = req.pending.popleft()
            speech.words += 1
            speech.left = self._frames
            speech.tone = sum(word.text.encode()) % TABLE_STEPS
            speech.word_end = word.end
        chunks: list[Chunk] = []
        if speech.left and speech.frames < most:
            speech.left = speech.left - 1
            speech.frames = speech.frames + 1
            speech.text_end = speech.text_end if speech.left else speech.word_end
            chunks = [Codes(np.array([[speech.tone, speech.left]], np.int16), speech.text_end)]
            if state_due(speech.frames - 1, speech.frames):
                chunks.append(Checkpoint(asdict(speech)))
        req.needs_input = not speech.left
        req.cut = speech.frames >= most
        req.done = req.cut or (req.needs_input and req.ended and not req.pending)
        return chunks


@dataclass(slots=True)
class Tone:
    """Phase of the tone, and the number of frames played."""

    phase: float = 0.0
    frames: int = 0


class ScriptCode2Wav:
    """Code2wav stage that plays each frame's tone with continuous phase; half of a word's last frame is silent."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return StageInfo(takes=kinds(Codes), emits=kinds(Audio), slots=config.slots, facets=Facets(frame_s=FRAME_S))

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        self._step_s = _step_s(config)

    def open(self, req: StageRequest) -> None:
        req.state = Tone(**(req.checkpoint or {}))

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        return Codec(2, 1 << 15, FRAME_SAMPLES).windows(req, inputs, req.state.frames)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        time.sleep(self._step_s)
        return [self._play(req) for req in reqs]

    def _play(self, req: StageRequest) -> list[Chunk]:
        if not req.pending:
            req.done = True
            return []
        window: Window = req.pending.popleft()
        codes = window.codes
        advance = np.repeat(2 * math.pi * 220 * 2 ** (codes[:, 0] / 12) / SPEAKER_RATE_HZ, FRAME_SAMPLES)
        tone: Tone = req.state
        phase = tone.phase + np.cumsum(advance)
        tone.phase = float(phase[-1]) % (2 * math.pi)
        tone.frames = tone.frames + len(codes)
        wave = (0.2 * np.sin(phase)).astype(np.float32).reshape(len(codes), FRAME_SAMPLES)
        wave[codes[:, 1] == 0, -GAP_SAMPLES:] = 0
        sound = Audio(wave.reshape(-1), window.marks)
        left = state_due(tone.frames - len(codes), tone.frames)
        return [sound, Checkpoint(asdict(tone))] if left else [sound]


def _step_s(config: StageConfig) -> float:
    """Return the simulated duration of a step (option ``step_s``)."""
    return float(config.options.get("step_s", 0.0))


STAGES = {
    "ears": f"{__name__}:ScriptEars",
    "thinker": f"{__name__}:ScriptThinker",
    "talker": f"{__name__}:ScriptTalker",
    "code2wav": f"{__name__}:ScriptCode2Wav",
}
