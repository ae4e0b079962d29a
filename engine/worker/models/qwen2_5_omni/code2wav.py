"""Decodes codes to audio block by block: flow matching to a mel spectrogram, then a vocoder.

The blocks are fixed by their index, and the noise depends only on the seed and the position in the answer. So the audio
does not depend on how the codes arrive or on the rest of the batch.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.chunk import Audio, Chunk, Codes, kinds
from engine.core import SPEAKER_RATE_HZ, Facets, StageInfo
from engine.errors import EngineError, StageFailed, WeightsError
from engine.worker.codec import within
from engine.worker.models.qwen2_5_omni.dit import Dit
from engine.worker.models.qwen2_5_omni.source import CODE_S, Qwen2_5OmniSource, TalkerVoice
from engine.worker.models.qwen2_5_omni.vocoder import Vocoder
from engine.worker.nn.device import to_device
from engine.worker.nn.sampling_params import uniforms
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest
from engine.worker.talker.net import PREDICTOR
from engine.worker.talker.pending import MAX_PENDING
from engine.worker.transitions.qwen2_5_omni import PLACEHOLDER, Sounding

NOISE = PREDICTOR + 1  # random stream of the noise
STEPS = (1, 1, 2, 3)
"""Blocks (0.24 s each) per decoding step: few at first for early audio; the last number repeats. Not configurable,
because the cuts change the audio.
"""
BACK, AHEAD = 3, 2
"""Context blocks on each side of a step. This approximates the full context: each forward pass attends two blocks back
and one ahead, and there are 36 passes.
"""
LOOK_BACK, LOOK_AHEAD = 22, 22
"""Mel frames on each side that the vocoder needs; frames further away change samples by less than 1e-9."""
CODE_SAMPLES = round(CODE_S * SPEAKER_RATE_HZ)


@dataclass(frozen=True, slots=True)
class CodePieces:
    """Codes [n] from the talker, and the number of the text's characters spoken by then."""

    codes: NDArray[np.int64]
    text_end: int


@dataclass(slots=True)
class DitAudio:
    """State of one answer."""

    seed: int
    voice: Tensor
    codes: list[int] = field(default_factory=list[int])
    text_ends: list[int] = field(default_factory=list[int])
    """Characters of the text spoken at the end of each code."""
    blocks: int = 0
    """Blocks already decoded to audio."""
    steps: int = 0
    mel: Tensor | None = None
    """Last mel frames [frames, mel] of these blocks, as context of the vocoder."""


@dataclass(frozen=True, slots=True)
class Cut:
    """A range of codes to sample, ``start`` to ``end``; only ``first`` to ``last`` become audio."""

    start: int
    first: int
    last: int
    end: int

    @property
    def shape(self) -> tuple[int, int, int]:
        """Lengths of context and audio; cuts of equal shape can share a batch."""
        return self.first - self.start, self.last - self.first, self.end - self.last


class Code2Wav:
    """Decodes codes to audio in float32, because the networks are small and rounding errors would be audible."""

    plannable: ClassVar[bool] = True

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return StageInfo(
            takes=kinds(Codes),
            emits=kinds(Audio),
            slots=config.slots,
            max_pending=MAX_PENDING,
            facets=Facets(frame_s=CODE_S, own_chunks=True),
        )

    def __init__(self, config: StageConfig) -> None:
        self.source = source = Qwen2_5OmniSource(config)
        self.info = self.describe(config)
        if not source.voices:
            raise WeightsError(f"{source.folder}: this checkpoint has no code2wav. Configure only its thinker.")
        read, sizes = source.reader("token2wav.", torch.float32), source.config.token2wav_config
        self.dit = Dit(read.below("code2wav_dit_model"), sizes.dit_config)
        self.vocoder = Vocoder(read.below("code2wav_bigvgan_model"), sizes.bigvgan_config)
        self.block = self.dit.block // self.dit.repeats
        self.book = int(sizes.dit_config.num_embeds)
        talker = source.config.talker_config
        self.silent = {talker.tts_codec_start_token_id, talker.tts_codec_pad_token_id, talker.tts_codec_end_token_id}
        with torch.inference_mode():
            self.voices: dict[int, Tensor] = {id(one): self.dit.voice_row(one) for one in source.voices.values()}

    def open(self, req: StageRequest) -> None:
        voice: TalkerVoice = self.source.voice(req.request)
        req.state = DitAudio(req.request.sampling.seed, self.voices[id(voice)])

    async def adapt(self, req: StageRequest, inputs: AsyncIterator[Chunk]) -> AsyncGenerator[Any]:
        """Yield codes without the talker's special codes. Raises StageFailed for an invalid code."""
        sounding, text_end = Sounding(self.book), 0
        async for chunk in inputs:
            if isinstance(chunk, Codes):
                text_end = chunk.text_end
                yield CodePieces(sounding.add(known(chunk.frames, self.book, self.silent)), text_end)
        yield CodePieces(sounding.end(), text_end)

    @torch.inference_mode()
    def step(self, reqs: Sequence[StageRequest]) -> Sequence[Sequence[Chunk] | EngineError]:
        alike: dict[tuple[int, int, int, int], list[tuple[StageRequest, Cut]]] = {}
        for req in reqs:
            cut = self._next(req)
            if cut is not None:
                mel = req.state.mel
                alike.setdefault((*cut.shape, 0 if mel is None else len(mel)), []).append((req, cut))
        results: dict[int, list[Chunk]] = {}
        for group in alike.values():
            for (req, cut), wave in zip(group, self._sound(group), strict=True):
                results[id(req)] = [Audio(wave, self._marks(req.state, cut))]
        for req in reqs:
            over = req.ended and not req.pending and req.state.blocks * self.block >= len(req.state.codes)
            req.done = over
            req.needs_input = not over and self._cut(req.state, req.ended) is None
        return [results.get(id(req), []) for req in reqs]

    def sample(self, sounds: Sequence[DitAudio], cuts: Sequence[Cut]) -> Tensor:
        """Return mel spectrograms [batch, frames, mel] of cuts of equal shape."""
        device, repeats = self.source.device, self.dit.repeats
        codes = to_device([one.codes[cut.start : cut.end] for one, cut in zip(sounds, cuts, strict=True)], device)
        count = (cuts[0].end - cuts[0].start) * repeats
        starts = to_device([cut.start * repeats for cut in cuts], device)
        positions = starts[:, None] + torch.arange(count, device=device)
        noise = normal(to_device([one.seed for one in sounds], device), positions, self.dit.mel_width)
        return self.dit.sample(noise, codes, torch.stack([one.voice for one in sounds]))

    def _next(self, req: StageRequest) -> Cut | None:
        sound: DitAudio = req.state
        while req.pending:
            piece: CodePieces = req.pending.popleft()
            sound.codes += piece.codes.tolist()
            sound.text_ends += [piece.text_end] * len(piece.codes)
        return self._cut(sound, req.ended)

    def _cut(self, sound: DitAudio, ended: bool) -> Cut | None:
        """Return the next blocks if their context has arrived or the answer has ended; otherwise None."""
        first, there = sound.blocks, len(sound.codes)
        last = first + STEPS[min(sound.steps, len(STEPS) - 1)]
        if first * self.block >= there or (not ended and (last + AHEAD) * self.block > there):
            return None
        start = max(0, first - BACK)
        return Cut(*(min(n * self.block, there) for n in (start, first, last, last + AHEAD)))

    def _sound(self, group: Sequence[tuple[StageRequest, Cut]]) -> list[NDArray[np.float32]]:
        """Return the audio of cuts of equal shape, and store the context for the next blocks."""
        sounds, cuts = [req.state for req, _ in group], [cut for _, cut in group]
        mel, repeats = self.sample(sounds, cuts), self.dit.repeats
        before, count = cuts[0].shape[0] * repeats, cuts[0].shape[1] * repeats
        mel = mel[:, before : before + count + LOOK_AHEAD]
        past = mel[:, :0] if sounds[0].mel is None else torch.stack([one.mel for one in sounds])
        whole = torch.cat((past, mel), 1)
        start = past.shape[1]
        waves = self.vocoder(whole)[:, start * self.vocoder.samples : (start + count) * self.vocoder.samples]
        for sound, cut, row in zip(sounds, cuts, whole, strict=True):
            sound.mel = row[: start + count][-LOOK_BACK:]
            sound.blocks = -(-cut.last // self.block)
            sound.steps = sound.steps + 1
        return list(waves.float().cpu().numpy())

    def _marks(self, sound: DitAudio, cut: Cut) -> tuple[tuple[int, int], ...]:
        ends = sound.text_ends[cut.first : cut.last]
        return tuple((n * CODE_SAMPLES, end) for n, end in enumerate(ends, cut.first + 1))


def normal(seeds: Tensor, positions: Tensor, width: int) -> Tensor:
    """Return Gaussian noise [batch, frames, width] by the Box-Muller transform.

    It depends only on the seeds [batch] and the frame positions [batch, frames].
    """
    channels = torch.arange(width, device=seeds.device)
    one, two = (uniforms(seeds[:, None, None], NOISE, positions[..., None], channels + offset) for offset in (0, width))
    return torch.sqrt(-2 * torch.log(1 - one)) * torch.cos(2 * torch.pi * two)


def known(frames: NDArray[Any], book: int, silent: set[int]) -> NDArray[np.int64]:
    """Return the ids [n] of frames [n, 1]: codes, the talker's special codes, and placeholders.

    Raises StageFailed for any other id. Looking it up would terminate the process on some devices.
    """
    if frames.ndim != 2 or frames.shape[1] != 1:
        raise StageFailed(f"codec frames are [n, 1], not {list(frames.shape)}")
    ids = frames[:, 0].astype(np.int64)
    within(ids[~np.isin(ids, [*silent, PLACEHOLDER])], book)
    return ids
