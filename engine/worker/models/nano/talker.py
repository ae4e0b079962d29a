"""nano's talker stage: text to letters to codec frames.

A text encoder gives each letter a state and a duration. A decoder step then produces one 40 ms frame of 8 codes,
attending to a window of past frames. A letter is spoken once the ten letters after it are known, or the text has ended.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.chunk import Checkpoint, Chunk, Codes, Text, VoiceText, kinds
from engine.core import Facets, Request, StageInfo, Voice
from engine.english.numbers import grammar
from engine.english.speller import Said, Speller
from engine.errors import EngineError, RequestError
from engine.worker.codec import frames_of, state_due
from engine.worker.models.nano.inference import run
from engine.worker.models.nano.options import check_options
from engine.worker.models.nano.voice import FRAME_S, LATENT, VOICES, WHO, Floats, default_voice, session, voice_of
from engine.worker.stage import StageConfig, guarded, warm_up
from engine.worker.stage_request import StageRequest
from engine.worker.tts.answer_audio import MOST_UNSAID

LETTERS = "^ abcdefghijklmnopqrstuvwxyz',.?"
LETTER_INDEX = {letter: index for index, letter in enumerate(LETTERS)}
REACH = 10
"""Letters of context on each side in the text encoder. A letter is spoken once the following ones are known."""
LAYERS, HEADS, HEAD, RING = 4, 4, 48, 31
"""Shape of the talker step: layers, heads, head width, and number of past frames it attends to."""


@dataclass(slots=True)
class NanoTalkerState:
    """State of one request: letters with their source positions, and states and end times of the encoded letters."""

    letters: list[int] = field(default_factory=lambda: [0])
    sources: list[int] = field(default_factory=lambda: [0])
    states: list[Floats] = field(default_factory=list[Floats])
    ends_s: list[float] = field(default_factory=list[float])
    complete: bool = False
    frames: int = 0
    letter: int = 0  # index of the current letter
    latent: Floats = field(default_factory=lambda: np.zeros(LATENT, np.float32))

    @property
    def middle_s(self) -> float:
        """Middle of the next frame, which determines its letter."""
        return (self.frames + 0.5) * FRAME_S

    @property
    def speakable(self) -> bool:
        return bool(self.ends_s) and self.middle_s <= self.ends_s[-1]

    @property
    def text_end(self) -> int:
        """Number of characters that have been fully spoken.

        No letter after the current one counts: whether it is known yet depends on the speed of the thinker.
        """
        over = self.letter + (self.ends_s[self.letter] < self.middle_s)
        return self.sources[over - 1] + 1 if over > 1 else 0  # the first letter is the leading silence

    def hear(self, said: Said) -> None:
        self.letters += [LETTER_INDEX[letter] for letter in said.letters]
        self.sources += said.sources

    def undecided(self) -> tuple[int, int]:
        """Return the range of letters that can be encoded now."""
        return len(self.ends_s), len(self.letters) if self.complete else max(0, len(self.letters) - REACH)


MAX_GUIDANCE = 10.0
NEGATIVE = "negative"
"""Role of the companion request without text; classifier-free guidance moves away from its output."""


class Talker:
    """Turns letters into codec frames, one per step for every request.

    A guided request has a companion, which has the same past frames but no text. Their outputs combine into one frame.
    """

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        check_options(config)
        default = default_voice(config)
        ids = sorted(VOICES, key=lambda id: id != default)
        return StageInfo(
            takes=kinds(Text, VoiceText),
            feeds=kinds(Codes),
            slots=config.slots,
            group="guided",
            checkpoints=kinds(Codes),
            facets=Facets(voices=tuple(Voice(id, *WHO[id]) for id in ids), languages=("en",)),
        )

    def __init__(self, config: StageConfig) -> None:
        self.info = self.describe(config)
        self._default_voice = default_voice(config)
        self._text = session(config, "talker_text")
        self._frame = session(config, "talker_step")
        self._rings = np.full((config.slots, LAYERS, 2, HEADS, RING, HEAD), 0, np.float32)

    def warm_up(self) -> None:
        grammar()  # load the number grammar before the first request
        warm_up(self, self.info.slots, Speller().feed("It is a pleasure to meet you. "))

    def open(self, req: StageRequest) -> None:
        """Start an answer, or resume after the frames that a lost replica's checkpoint covers; the text is sent
        again.
        """
        _check_guidance(req.request)
        voice_of(req.request, self._default_voice)
        speech = req.state = NanoTalkerState()
        if req.role == "main" and (left := req.checkpoint) is not None:
            speech.frames = left["frames"]
            speech.latent = left["latent"]
            self._rings[_slots(req)] = left["rings"]

    def _checkpoint(self, req: StageRequest) -> Checkpoint:
        """Return the state that, besides the text, determines the next frame."""
        rings = self._rings[_slots(req)]
        return Checkpoint({"frames": req.state.frames, "latent": req.state.latent, "rings": rings})

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """Yield the letters to speak; the last item is the speller's rest."""
        speller = Speller()
        unsaid = 0
        async for chunk in inputs:
            if not isinstance(chunk, Text | VoiceText):
                continue
            unsaid += len(chunk.text)
            if (said := speller.feed(chunk.text, chunk.start)).letters:
                unsaid = 0
                yield said
            if unsaid > MOST_UNSAID:
                req.cut = True
                break
        yield speller.flush()

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        failed: dict[int, EngineError] = {}
        for req in reqs:
            if req.role != "main":
                req.pending.clear()
            elif error := guarded(self, req, self._read):
                failed[req.slot] = error
        main = [req for req in reqs if req.role == "main" and req.slot not in failed]
        speaking = [req for req in main if req.state.speakable and req.state.frames < _most(req.request)]
        codes = iter(self._speak(speaking) if speaking else ())
        given = {req.slot: guarded(self, req, self._given, next(codes)) for req in speaking}
        for req in main:
            speech: NanoTalkerState = req.state
            req.needs_input = not speech.speakable
            req.cut = req.cut or speech.frames >= _most(req.request)
            req.done = speech.frames >= _most(req.request) or (req.needs_input and speech.complete)
        return [failed.get(req.slot, given.get(req.slot, [])) for req in reqs]

    def _read(self, req: StageRequest) -> None:
        """Take the pending letters, and encode every letter whose context is complete."""
        speech: NanoTalkerState = req.state
        while req.pending:
            speech.hear(req.pending.popleft())
        speech.complete = req.ended and len(speech.letters) > 1
        if req.ended and len(speech.letters) == 1:
            speech.complete = True
            speech.letters = []
            speech.sources = []
        begin, end = speech.undecided()
        if end <= begin:
            return
        left = max(0, begin - REACH)
        window = speech.letters[left:] + [0] * (REACH if speech.complete else 0)
        inputs = {
            "letters": np.array([window], np.int64),
            "voice": np.array([voice_of(req.request, self._default_voice)]),
        }
        states, duration = run(self._text, ("states", "duration"), inputs)
        part = slice(begin - left, end - left)
        speech.states += list(states[0, part])
        last_s = speech.ends_s[-1] if speech.ends_s else 0.0
        speech.ends_s += (last_s + np.cumsum(_seconds(duration[0, part]) / req.request.speed)).tolist()

    def _speak(self, reqs: Sequence[StageRequest]) -> NDArray[np.int64]:
        """Return one frame of codes [requests, 8] per main request, and store the new keys and values."""
        slots, inputs = self._inputs(reqs)
        codes, latents, new = run(self._frame, ("codes", "latent", "new"), inputs)
        self._rings[slots, :, :, :, inputs["position"] % RING] = new
        for req, latent in zip(reqs, latents[: len(reqs)], strict=True):
            req.state.latent = latent
            req.state.frames = req.state.frames + 1
        return codes[: len(reqs)]

    def _inputs(self, reqs: Sequence[StageRequest]) -> tuple[NDArray[np.int64], dict[str, NDArray[Any]]]:
        """Return slots and network inputs: a row per request, then a row without text for each companion."""
        count, guided = len(reqs), [index for index, req in enumerate(reqs) if NEGATIVE in req.roles]
        order = [*range(count), *guided]
        speeches: list[NanoTalkerState] = [req.state for req in reqs]
        slots = np.array([req.slot for req in reqs] + [reqs[index].roles[NEGATIVE].slot for index in guided])
        states = np.stack([_advanced(speech) for speech in speeches])[order]
        positions = np.array([_positions(speech) for speech in speeches], np.float32)[order]
        states[count:] = positions[count:] = 0
        position = np.array([speech.frames for speech in speeches], np.int64)[order]
        partner, guidance = np.arange(len(order)), np.ones(len(order), np.float32)
        partner[guided] = np.arange(count, len(order))
        guidance[guided] = [reqs[index].request.sampling.guidance for index in guided]
        return slots, {
            "states": states,
            "places": positions,
            "previous": np.stack([speech.latent for speech in speeches])[order],
            "position": position,
            "ring": self._rings[slots],
            "partner": partner,
            "guidance": guidance,
            "voice": np.array([voice_of(req.request, self._default_voice) for req in reqs], np.int64)[order],
        }

    def _given(self, req: StageRequest, codes: NDArray[np.int64]) -> list[Chunk]:
        frame = Codes(codes[None].astype(np.int16), req.state.text_end)
        frames = req.state.frames
        return [frame, self._checkpoint(req)] if state_due(frames - 1, frames) else [frame]


def _most(request: Request) -> int:
    """Return the maximum number of frames of an answer."""
    return frames_of(request.max_audio_s, FRAME_S)


def _seconds(duration: Floats) -> NDArray[np.float64]:
    """Convert the encoder's output [L, 2] (log seconds, logit of being spoken) to seconds [L]."""
    return np.where(duration[:, 1] > 0, np.exp(duration[:, 0].astype(np.float64)), 0.0)


def _advanced(speech: NanoTalkerState) -> Floats:
    """Move to the letter at the middle of the next frame, and return its state."""
    while speech.ends_s[speech.letter] < speech.middle_s:
        speech.letter += 1
    return speech.states[speech.letter]


def _positions(speech: NanoTalkerState) -> list[float]:
    """Return the next frame's position within its letter as six features."""
    middle = speech.middle_s
    begin, end = (speech.ends_s[speech.letter - 1] if speech.letter else 0.0), speech.ends_s[speech.letter]
    length = max(end - begin, 0.005)
    share = min(1.0, max(0.0, (middle - begin) / length))
    since, left = min(3.0, (middle - begin) * 8), min(3.0, (end - middle) * 8)
    return [share, 1 - share, min(length, 0.5) * 4, since, left, abs(share - 0.5)]


def _slots(req: StageRequest) -> list[int]:
    """Return the slots of a main request and its companion."""
    return [req.slot, *(other.slot for role, other in req.roles.items() if role == NEGATIVE)]


def _check_guidance(request: Request) -> None:
    """Raise RequestError for unsupported roles and guidance scales."""
    roles, guidance = request.roles, request.sampling.guidance
    if wrong := sorted(set(roles) - {"main", NEGATIVE}):
        raise RequestError(
            f"nano's talker does not support the role {wrong[0]!a:.100}; use main, and {NEGATIVE} for guidance"
        )
    if guidance != 1 and NEGATIVE not in roles:
        raise RequestError(f"guidance of {guidance:g} needs the role {NEGATIVE} in addition to main")
    if not 0 <= guidance <= MAX_GUIDANCE:
        raise RequestError(f"guidance must be from 0 to {MAX_GUIDANCE:g} (got {guidance:g})")
