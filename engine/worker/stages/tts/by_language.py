"""Several voices as one: each answer is spoken by the voice of the turn's language.

The speech recogniser detects that language. If it does not, the first hint of the session counts, or else the script
of the answer. A request that names a voice gets that voice in every language. Each voice applies the rules of its own
language for numbers, dates and amounts.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from typing import Any

from msgspec.structs import replace

from engine.chunk import Audio, Checkpoint, Chunk, Text, VoiceText, kinds
from engine.core import StageInfo, Voice
from engine.deployment.config import build
from engine.errors import ConfigError, EngineError
from engine.worker.stage import Stage, StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.tts.language_choice import BY_LANGUAGE, chosen_voice
from engine.worker.tts.voices import asked_voice, voice_info
from engine.worker.uses import stage_type

VOICE = "by_language.voice"
"""The key of a checkpoint's state for the voice that speaks the answer."""
DEADLINE_S = 10.0
"""Maximum seconds of a step of a voice that gives no deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ByLanguageOptions:
    """Stage ``options`` of ``tts.by_language``."""

    voice: str = ""
    """The default voice. Empty: `auto`, which stands for the voice of the turn's language."""


@dataclass(frozen=True, slots=True)
class _Speaker:
    """A voice at its own stage."""

    voice: Voice
    """The voice as requests name it."""
    place: int
    """The index of its stage in ``models``."""
    id: str
    """Its id at that stage."""


class ByLanguage:
    """The stage. A request is opened at the stage of its voice, which then makes all steps of the request."""

    composes = True

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        infos = [stage_type(use).describe(model) for use, model in config.models]
        return _described(config, infos)

    def __init__(self, config: StageConfig) -> None:
        self._stages: list[Stage] = []
        for use, model in config.models:
            stage: Any = stage_type(use)(model)
            stage.info = replace(stage.info, name=use)
            self._stages.append(stage)
        infos = [stage.info for stage in self._stages]
        self.info = _described(config, infos)
        self._speakers = {speaker.voice.id: speaker for speaker in _speakers(infos)}
        self._chosen: dict[int, _Speaker] = {}  # by the request's slot

    def warm_up(self) -> None:
        for stage in self._stages:
            if warm_up := getattr(stage, "warm_up", None):
                warm_up()

    def deadline_s(self, reqs: Sequence[StageRequest]) -> float:
        limits = (getattr(self._stage_of(req), "deadline_s", lambda _: DEADLINE_S)([req]) for req in reqs)
        return max(limits, default=DEADLINE_S)

    def open(self, req: StageRequest) -> None:
        self._chosen.pop(req.slot, None)
        voice = asked_voice(req.request.voice, self.info.facets.voices)
        voice = (req.checkpoint or {}).get(VOICE, voice)
        if voice != BY_LANGUAGE.id:
            self._begin(req, voice)

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        first: list[Chunk] = []
        if req.slot not in self._chosen:
            first = await _until_letters(inputs)
            self._begin(req, self._voice_for(req, first))
        async with aclosing(self._stage_of(req).adapt(req, _continued(first, inputs))) as items:
            async for item in items:
                yield item

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        return [self._step(req) for req in reqs]

    def _stage_of(self, req: StageRequest) -> Stage:
        return self._stages[self._chosen[req.slot].place]

    def _begin(self, req: StageRequest, voice: str) -> None:
        """Open the request at the stage of a voice."""
        speaker = self._chosen[req.slot] = self._speakers[voice]
        req.request = replace(req.request, voice=speaker.id)
        self._stage_of(req).open(req)

    def _voice_for(self, req: StageRequest, first: Sequence[Chunk]) -> str:
        """Return the id of the voice for an answer that begins with these chunks."""
        texts = [chunk for chunk in first if isinstance(chunk, Text | VoiceText)]
        detected = (chunk.language for chunk in texts)
        language = next(filter(None, (*detected, *req.request.hints.languages)), "")
        voices = [speaker.voice for speaker in self._speakers.values()]
        return chosen_voice(voices, language, "".join(chunk.text for chunk in texts)).id

    def _step(self, req: StageRequest) -> Sequence[Chunk] | EngineError:
        """Step a request at its stage. Its checkpoints contain the voice, which another replica must keep."""
        (given,) = self._stage_of(req).step([req])
        if isinstance(given, EngineError):
            return given
        voice = {VOICE: self._chosen[req.slot].voice.id}
        return [Checkpoint(chunk.state | voice) if isinstance(chunk, Checkpoint) else chunk for chunk in given]


STAGE = ByLanguage


def _described(config: StageConfig, infos: Sequence[StageInfo]) -> StageInfo:
    """Combine the descriptions of the voices' stages. Raises ConfigError."""
    options: ByLanguageOptions = build(ByLanguageOptions, dict(config.options), "options")
    if config.weights is not None:
        raise ConfigError("weights belong to the voices of tts.by_language; move them to its models")
    if not infos:
        raise ConfigError("models: name at least one voice, like `models: [{use: tts.pocket, weights: pocket-de}, …]`")
    for i, info in enumerate(infos):
        is_voice = info.takes == kinds(Text, VoiceText) and info.emits == kinds(Audio)
        if not is_voice or not info.blocking or not info.facets.voices:
            raise ConfigError(f"models[{i}]: use a voice that runs in the worker: tts.pocket, tts.sherpa or tts.phonon")
    voices = [BY_LANGUAGE, *(speaker.voice for speaker in _speakers(infos))]
    languages = tuple(dict.fromkeys(language for info in infos for language in info.facets.languages))
    info = voice_info(config, voices, options.voice, languages)
    return replace(info, slots=min(info.slots, *(one.slots for one in infos)))


def _speakers(infos: Sequence[StageInfo]) -> list[_Speaker]:
    """Return all voices, in order. Voices of the same id get their language as a prefix, like ``de-0``.

    Raises ConfigError if two voices have the same id and the same language.
    """
    ids = Counter([BY_LANGUAGE.id, *(voice.id for info in infos for voice in info.facets.voices)])
    speakers: list[_Speaker] = []
    for place, info in enumerate(infos):
        for voice in info.facets.voices:
            language = voice.language or next(iter(info.facets.languages), "")
            id = voice.id if ids[voice.id] == 1 else f"{language}-{voice.id}"
            name = voice.name if id == voice.id else f"{voice.name} ({language})"
            speakers.append(_Speaker(Voice(id, name, voice.language), place, voice.id))
    counts = Counter(speaker.voice.id for speaker in speakers)
    for speaker in speakers:
        if counts[speaker.voice.id] > 1:
            raise ConfigError(f"models[{speaker.place}]: two voices are called {speaker.voice.id}; remove one of them")
    return speakers


async def _until_letters(inputs: AsyncIterator[Chunk]) -> list[Chunk]:
    """Read an answer up to its first letter or digit, and return the chunks."""
    chunks: list[Chunk] = []
    async for chunk in inputs:
        chunks.append(chunk)
        if isinstance(chunk, Text | VoiceText) and any(map(str.isalnum, chunk.text)):
            break
    return chunks


async def _continued(first: Sequence[Chunk], inputs: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    for chunk in first:
        yield chunk
    async for chunk in inputs:
        yield chunk
