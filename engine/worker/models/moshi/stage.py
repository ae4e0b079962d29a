"""The duplex stage of Moshi: hears a frame of each session, and says the next frame and its text."""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from engine.chunk import Audio, Chunk, Speech, Text, kinds
from engine.core import SPEAKER_RATE_HZ, Duplex, Facets, Request, StageInfo, TextPart, Wave
from engine.errors import ContextOverflow, EngineError, StageFailed, WeightsError
from engine.worker.asr.transcribing import pcm_of
from engine.worker.models.moshi.pieces import WordPieces
from engine.worker.models.moshi.prompt import PersonaVoice, SystemPrompt, prompt_of, tagged
from engine.worker.models.moshi.source import MoshiSource
from engine.worker.nn.sampling_params import FAILED, SamplingParams
from engine.worker.stage import StageConfig, guarded
from engine.worker.stage_request import StageRequest
from engine.worker.tts.voices import asked_voice

RATE_HZ = 24_000
PIECE = 32
"""Maximum positions of a prompt per step, which other sessions wait for."""


@dataclass(slots=True)
class MoshiTalk:
    """State of a session."""

    params: SamplingParams
    words: WordPieces
    characters: int = 0
    """Characters that it has said."""


class MoshiDuplex:
    """The stage."""

    plannable: ClassVar[bool] = True

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return cls._info(MoshiSource(config))

    @classmethod
    def _info(cls, source: MoshiSource) -> StageInfo:
        codec = source.codec_sizes
        if codec.sampling_rate != SPEAKER_RATE_HZ:
            raise WeightsError(f"{source.folder}: a codec at {codec.sampling_rate} Hz is not supported (only 24000).")
        return StageInfo(
            takes=kinds(Speech),
            emits=kinds(Audio, Text),
            slots=source.slots,
            replay="never",
            facets=Facets(
                duplex=Duplex(frame_s=codec.frame_samples / RATE_HZ, rate_hz=RATE_HZ),
                model="moshi",
                tokenizer=source.tokenizer_id,
                voices=source.voices,
                languages=("en",),
                heard_languages=("en",),
            ),
        )

    def __init__(self, config: StageConfig) -> None:
        self._source = source = MoshiSource(config)
        self.info = self._info(source)
        self._tokenizer = source.tokenizer
        self._voices = {name: PersonaVoice.read(file, source.sizes) for name, file in source.voice_files.items()}
        self.net = source.network()

    def warm_up(self) -> None:
        self.net.warm()

    def open(self, req: StageRequest) -> None:
        sampling = req.request.sampling
        req.state = MoshiTalk(SamplingParams(sampling.seed, sampling.greedy), WordPieces(self._tokenizer))
        prompt = self._prompt(req.request)
        self.net.open(req.slot, prompt)
        req.needs_input = prompt is None

    def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        return pcm_of(inputs)

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        if not reqs[0].pending:
            return [guarded(self, req, self._prepare) for req in reqs]
        frames = np.stack([req.pending.popleft() for req in reqs])
        tokens, waves = self.net.step(frames, [req.slot for req in reqs], [req.state.params for req in reqs])
        return [
            guarded(self, req, self._said, int(token), wave)
            for req, token, wave in zip(reqs, tokens, waves, strict=True)
        ]

    def _prepare(self, req: StageRequest) -> list[Chunk]:
        """Compute the next part of a session's prompt."""
        req.needs_input = self.net.prepare(req.slot, req.state.params, PIECE)
        return []

    def _said(self, req: StageRequest, token: int, wave: Wave) -> list[Chunk]:
        if token == FAILED:
            raise StageFailed("The model computed values that are not numbers.")
        sound = Audio(np.clip(wave, -1, 1))
        talk: MoshiTalk = req.state
        words = talk.words(token)
        if not words:
            return [sound]
        start = talk.characters
        talk.characters += len(words)
        return [sound, Text(words, start, (token,))]

    def _prompt(self, request: Request) -> SystemPrompt | None:
        """Return what a session begins with; None for a model without prompts."""
        source = self._source
        if not source.prompted:
            return None
        voice = self._voices[asked_voice(request.voice, source.voices)] if self._voices else None
        text = _instructions(request) or source.options.instructions
        ids = self._tokenizer.encode(tagged(text), add_special_tokens=False).ids if text.strip() else []
        prompt = prompt_of(source.sizes, voice, ids)
        most = source.window // 2
        if prompt.length > most:
            raise ContextOverflow(
                f"The voice and the instructions take {prompt.length} frames; they may take {most}. Shorten them."
            )
        return prompt


def _instructions(request: Request) -> str:
    """Return the text of the system messages."""
    parts = (part for message in request.messages if message.role == "system" for part in message.parts)
    return "\n".join(part.text for part in parts if isinstance(part, TextPart))
