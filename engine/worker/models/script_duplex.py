"""A duplex model without weights: it listens to frames of sound while it speaks in tones.

For tests, for trying clients, and for measuring the engine alone. A word of the user is sound above ``LOUD``, up to the
next quiet frame. After five quiet frames it answers "I heard N words.". Each word is one tone of ``frames_per_word``
(3) frames. If the user speaks for three frames meanwhile, it stops. If the first message is ``say: XYZ`` by the system,
it begins with XYZ. That prompt takes one step per word.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from engine.chunk import Audio, Chunk, Speech, Text, kinds
from engine.core import SPEAKER_RATE_HZ, Duplex, Facets, Request, StageInfo, TextPart, Voice, Wave
from engine.errors import EngineError
from engine.worker.asr.transcribing import pcm_of
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest

LOUD = 0.02  # amplitude
QUIET_FRAMES = 5  # after the user's last word, until it answers
INTERRUPTS = 3  # loud frames that stop it
DUPLEX = Duplex()
FRAME_SAMPLES = round(DUPLEX.frame_s * SPEAKER_RATE_HZ)


@dataclass(slots=True)
class Talk:
    """State of a session."""

    prompt: deque[str]
    """Words of the prompt that are not computed yet."""
    words: deque[str] = field(default_factory=deque[str])
    """Words that it has still to say."""
    heard: int = 0
    """Words of the user since its last answer."""
    loud: int = 0
    """Consecutive loud frames."""
    quiet: int = 0
    """Consecutive quiet frames."""
    tone: int = 0
    left: int = 0
    """Frames that remain of the current word."""
    characters: int = 0
    phase: float = 0.0


class ScriptDuplex:
    """The stage. Options: ``step_s`` and ``request_s`` simulate the duration of a step, and of each of its requests."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return StageInfo(
            takes=kinds(Speech),
            emits=kinds(Audio, Text),
            slots=config.slots,
            replay="never",
            facets=Facets(
                duplex=DUPLEX,
                model="script_duplex",
                voices=(Voice("tone", "Tone, a whistle"),),
                languages=("en",),
                heard_languages=("en",),
            ),
        )

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        self._frames = int(config.options.get("frames_per_word", 3))
        self._step_s = float(config.options.get("step_s", 0.0))
        self._request_s = float(config.options.get("request_s", 0.0))

    def open(self, req: StageRequest) -> None:
        req.state = Talk(deque(_greeting(req.request)))
        req.needs_input = not req.state.prompt

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        return pcm_of(inputs)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        if took_s := self._step_s + self._request_s * len(reqs):
            time.sleep(took_s)  # not for 0 s: it would give the processor away
        return [self._frame(req.state, req.pending.popleft()) if req.pending else _prompted(req) for req in reqs]

    def _frame(self, talk: Talk, wave: Wave) -> list[Chunk]:
        _hear(talk, wave)
        chunks: list[Chunk] = []
        if not talk.left and talk.words:
            word = talk.words.popleft() + (" " if talk.words else "")
            chunks = [Text(word, talk.characters, (1000 + sum(word.encode()) % 1000,))]
            talk.characters += len(word)
            talk.left = self._frames
            talk.tone = sum(word.encode()) % 16
        return [Audio(_tone(talk)), *chunks]


def _greeting(request: Request) -> list[str]:
    first = request.messages[0] if request.messages else None
    parts = first.parts if first is not None and first.role == "system" else ()
    text = " ".join(part.text for part in parts if isinstance(part, TextPart))
    return text.removeprefix("say:").split() if text.startswith("say:") else []


def _prompted(req: StageRequest) -> list[Chunk]:
    """Compute one word of the prompt."""
    talk: Talk = req.state
    talk.words.append(talk.prompt.popleft())
    req.needs_input = not talk.prompt
    return []


def _hear(talk: Talk, wave: Wave) -> None:
    loud = bool(np.abs(wave).max(initial=0.0) > LOUD)
    talk.heard += loud and not talk.loud
    talk.loud = talk.loud + 1 if loud else 0
    talk.quiet = 0 if loud else talk.quiet + 1
    if talk.loud == INTERRUPTS:
        talk.words.clear()
        talk.left = 0
    if talk.quiet >= QUIET_FRAMES and talk.heard and not (talk.words or talk.left):
        talk.words.extend(f"I heard {talk.heard} word{'s' if talk.heard > 1 else ''}.".split())
        talk.heard = 0


def _tone(talk: Talk) -> Wave:
    """Return a frame: a tone with continuous phase while it says a word, whose second half of the last frame is silent;
    otherwise silence.
    """
    if not talk.left:
        return np.zeros(FRAME_SAMPLES, np.float32)
    talk.left -= 1
    steps = np.arange(1, FRAME_SAMPLES + 1) * (2 * math.pi * 220 * 2 ** (talk.tone / 12) / SPEAKER_RATE_HZ)
    wave = (0.2 * np.sin(talk.phase + steps)).astype(np.float32)
    talk.phase = float(talk.phase + steps[-1]) % (2 * math.pi)
    if not talk.left:
        wave[FRAME_SAMPLES // 2 :] = 0
    return wave


STAGES = {"duplex": f"{__name__}:ScriptDuplex"}
