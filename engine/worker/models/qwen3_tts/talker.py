"""The talker stage: a voice's prompt, then text to codec frames, one token per frame."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from engine.chunk import Chunk, Codes, Tensors, Text, VoiceText, kinds
from engine.core import Facets, StageInfo
from engine.errors import EngineError, RequestError
from engine.worker.codec import frames_of
from engine.worker.models.qwen3_tts.source import Qwen3TtsSource
from engine.worker.models.qwen3_tts.text import StreamingText, TextIds, TtsTextToken
from engine.worker.models.qwen3_tts.voices import VoicePrompt, VoicePrompts
from engine.worker.nn.predictor import FurtherCodes
from engine.worker.nn.sampling_params import SamplingParams
from engine.worker.nn.slots import Batch
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.talker import stage
from engine.worker.talker import talker_state as speech
from engine.worker.talker.pending import MAX_PENDING, replay_of
from engine.worker.talker.rvq_net import RvqTalkerNet, RvqTalkerShape
from engine.worker.talker.talker_state import FRAME_S
from engine.worker.tts.voices import asked_voice

AT_ONCE = 1024  # characters tokenized before yielding to the event loop, a few milliseconds
FEWEST = 2
"""Minimum frames of an answer, as in the vendor's package."""


class Recording(msgspec.Struct, frozen=True, forbid_unknown_fields=True, tag="qwen3_tts.recording"):
    """Codec frames [frames, groups] of a cloned voice, which precede the answer's frames and are not played."""

    frames: NDArray[np.int16]


@dataclass(frozen=True, slots=True)
class Begin:
    """Starts an answer: the voice's prompt can be prefilled before any text arrives."""


@dataclass(frozen=True, slots=True)
class WholeText:
    """All tokens of an answer, after the tokens of the recording's transcript."""

    ids: tuple[int, ...]
    characters: int


@dataclass(slots=True, kw_only=True)
class Qwen3TtsTalkerState(speech.TalkerState):
    """State of an answer; ``prompt`` are the rows [n, width] that remain to be prefilled."""

    voice: VoicePrompt
    prompt: Tensor
    announced: bool = False
    """Whether the voice's recording has been sent to the next stage."""


class Talker(stage.TalkerStage[RvqTalkerNet]):
    """The talker stage."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return cls._info(Qwen3TtsSource(config))

    @classmethod
    def _info(cls, source: Qwen3TtsSource) -> StageInfo:
        return StageInfo(
            takes=kinds(Text, VoiceText),
            feeds=kinds(Codes, Recording),
            slots=source.slots,
            max_pending=MAX_PENDING,
            checkpoints=kinds(Codes, Recording),
            replay=replay_of(source.dtype, source.device),
            facets=Facets(voices=source.voices, languages=source.languages),
        )

    def __init__(self, config: StageConfig) -> None:
        self.source = source = Qwen3TtsSource(config)
        self.info = self._info(source)
        self._ids = TextIds(source.folder)
        talker = source.config.talker_config
        table = source.checkpoint.tensor(
            "talker.model.text_embedding.weight", (talker.text_vocab_size, talker.text_hidden_size)
        )
        read, context = source.reader("talker."), source.options.context
        self.net = RvqTalkerNet(read, _shape(source), table, context, source.slots, source.static)
        self._prompts = VoicePrompts(source, self.net, self._ids)
        self._voices = self._prompts.all()
        self.piece = source.options.piece
        self.end = source.config.tts_eos_token_id
        self.pad = source.config.tts_pad_token_id
        self.streams = source.options.layout == "streaming"
        generation = source.generation
        self.sampled = {
            "temperature": generation.get("temperature", 0.9),
            "top_k": self.net.shape.top_k,
            "top_p": generation.get("top_p", 1.0),
        }

    def open(self, req: StageRequest) -> None:
        asked = req.request.sampling
        voice = self._voices[asked_voice(req.request.voice, self.info.facets.voices)]
        again = stage.spoken_before(req, self.net.groups)
        req.state = Qwen3TtsTalkerState(
            params=SamplingParams(asked.seed, asked.greedy, **self.sampled),
            voice=voice,
            prompt=voice.lead,
            spoken=np.concatenate((voice.frames, again)) if len(voice.frames) else again,
            given=len(voice.frames),
            announced=not len(voice.frames),
        )
        self.net.open(req.slot)

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """Yield text tokens as soon as they are final, or all at once at the end."""
        yield Begin()
        words = [TtsTextToken(id, 0) for id in req.state.voice.words]
        tokens = self._tokens(inputs)
        if self.streams:
            for word in words:
                yield word
            async for token in tokens:
                yield token
        else:
            said = [token async for token in tokens]
            if said:
                yield WholeText(tuple(token.id for token in (*words, *said)), said[-1].text_end)

    async def _tokens(self, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[TtsTextToken]:
        text = StreamingText(self._ids)
        async for chunk in inputs:
            if isinstance(chunk, Text | VoiceText):
                for at in range(0, len(chunk.text), AT_ONCE):
                    for token in text.feed(chunk.text[at : at + AT_ONCE], chunk.start + at):
                        yield token
                    await asyncio.sleep(0)  # let other requests run
        for token in text.flush():
            yield token

    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        found = super().step(reqs)
        return [
            chunks if isinstance(chunks, EngineError) else [*self._announced(req), *chunks]
            for req, chunks in zip(reqs, found, strict=True)
        ]

    def _announced(self, req: StageRequest) -> Iterator[Chunk]:
        """Yield, once, the recording's frames for the next stage."""
        speech: Qwen3TtsTalkerState = req.state
        if not speech.announced:
            speech.announced = True
            yield Tensors.of(Recording(speech.voice.frames))

    def prefill(self, req: StageRequest, batch: Batch) -> int:
        """Prefill the voice's prompt, and a whole text, by up to one piece."""
        speech: Qwen3TtsTalkerState = req.state
        if not req.pending or not isinstance(item := req.pending[0], Begin | WholeText):
            return 0
        if isinstance(item, WholeText) and not speech.characters:
            self._check(speech, len(item.ids))
            speech.characters = item.characters
            speech.prompt = self._prompts.whole([*item.ids])
        embeddings = speech.prompt[: self.piece]
        speech.prompt = speech.prompt[self.piece :]
        self.add_on(req, batch, embeddings)
        if not len(speech.prompt):
            req.pending.popleft()
            speech.ended = isinstance(item, WholeText)
            speech.prepared = self.streams or speech.ended
            room = self.net.room - speech.num_computed_tokens - 1
            speech.limit = min(frames_of(req.request.max_audio_s, FRAME_S) + speech.given, room)
        return len(embeddings)

    def _check(self, speech: Qwen3TtsTalkerState, count: int) -> None:
        """Raise RequestError if a whole text leaves too little room for its speech."""
        room = self.net.room - speech.num_computed_tokens - speech.given - count
        if room < count:
            raise RequestError(
                f"The text has {count} tokens, but with options.layout: whole there is only room for "
                f"{(room + count) // 2}. Shorten it or raise options.context."
            )

    def first_embeddings(self, reqs: Sequence[StageRequest], texts: Sequence[int]) -> Tensor:
        return (self.net.text_embeddings(texts) + self.net.codes[self.net.shape.begin])[:, None]

    def taken(self, req: StageRequest, item: Any) -> int | None:
        if not isinstance(item, TtsTextToken):
            return None
        req.state.characters = max(req.state.characters, item.text_end)
        return item.id

    def end_text(self, req: StageRequest) -> int | None:
        """End the text. If there was none besides the recording's transcript, the answer is done without audio."""
        if req.state.characters:
            return super().end_text(req)
        req.state.ended = req.done = True
        return None


def _shape(source: Qwen3TtsSource) -> RvqTalkerShape:
    talker, generation = source.config.talker_config, source.generation
    further = FurtherCodes(
        generation.get("subtalker_temperature", 0.9),
        generation.get("subtalker_top_k", 50),
        generation.get("subtalker_top_p", 1.0),
    )
    return RvqTalkerShape(
        decoder=talker,
        predictor=talker.code_predictor_config,
        text_width=talker.text_hidden_size,
        text_inner=talker.text_hidden_size,
        begin=talker.codec_bos_id,
        end=talker.codec_eos_token_id,
        penalty=generation.get("repetition_penalty", 1.05),
        top_k=generation.get("top_k", 50),
        further=further,
        fewest=FEWEST,
    )
