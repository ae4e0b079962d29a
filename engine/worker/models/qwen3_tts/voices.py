"""Voice prompts: the talker rows that precede the text."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from engine.errors import ConfigError
from engine.worker.models.qwen3_tts.recording import Recordings
from engine.worker.models.qwen3_tts.source import Qwen3TtsSource
from engine.worker.models.qwen3_tts.text import TextIds
from engine.worker.nn.device import to_device
from engine.worker.talker.rvq_net import RvqTalkerNet
from engine.worker.tts.reference_voice import Clone, reference_sound

RATE_HZ = 24_000
LEAST = 64
"""Minimum rows that a recording must leave for the speech: five seconds."""


@dataclass(frozen=True, slots=True, eq=False)
class VoicePrompt:
    """The part of the prompt that precedes a voice's text."""

    lead: Tensor
    """Rows [rows, width]."""
    words: tuple[int, ...] = ()
    """Tokens of the recording's transcript, for a clone in context."""
    frames: NDArray[np.int16] = field(default_factory=lambda: np.zeros((0, 0), np.int16))
    """Codec frames [frames, groups] of the recording, for a clone in context."""


class VoicePrompts:
    """Builds the voice prompts of a checkpoint, laid out as in the vendor's package."""

    def __init__(self, source: Qwen3TtsSource, net: RvqTalkerNet, ids: TextIds) -> None:
        self._source = source
        self._net = net
        self._ids = ids
        self._talker = source.config.talker_config

    def all(self) -> Mapping[str, VoicePrompt]:
        """Return each voice's prompt by name. Raises ConfigError for an unusable recording."""
        source, options = self._source, self._source.options
        if source.kind == "voice_design":
            return {one.name: VoicePrompt(self._lead(None, "", one.instruct)) for one in options.designs}
        if source.kind == "base":
            recordings = Recordings(source)
            return {one.name: self._cloned(one, recordings) for one in options.clones}
        speakers: dict[str, int] = source.checkpoint.config["talker_config"]["spk_id"]
        embed = self._net.codes
        return {
            name: VoicePrompt(self._lead(embed[id], self._dialect(name), options.instruct))
            for name, id in speakers.items()
        }

    def _cloned(self, clone: Clone, recordings: Recordings) -> VoicePrompt:
        wave = reference_sound(clone, RATE_HZ)
        lead = self._lead(recordings.speaker(wave).to(self._net.device, self._net.dtype))
        if not clone.text.strip():
            return VoicePrompt(lead)
        words, frames = tuple(self._ids(clone.text.strip())), recordings.frames(wave)
        positions, context = len(lead) + len(words) + len(frames), self._source.options.context
        if positions > context - LEAST:
            raise ConfigError(
                f"options.clones: {clone.name!r:.80} takes {positions} of the {context} rows of options.context. Raise "
                "it or shorten the recording."
            )
        return VoicePrompt(lead, words, frames)

    def _dialect(self, speaker: str) -> str:
        """Return a speaker's dialect, which replaces Chinese as the language, or ""."""
        dialects = self._source.checkpoint.config["talker_config"].get("spk_is_dialect") or {}
        return dialects.get(speaker) or ""

    def _lead(self, speaker: Tensor | None, dialect: str = "", instruct: str = "") -> Tensor:
        """Return the rows before the text.

        They consist of the instruction, the start of the assistant's turn, and the language and speaker (added to
        padding).
        """
        config, talker, net = self._source.config, self._talker, self._net
        turn = [config.im_start_token_id, *self._ids("assistant"), *self._ids("\n")]
        asked = [config.im_start_token_id, *self._ids(f"user\n{instruct}"), config.im_end_token_id, *self._ids("\n")]
        known, language = self._source.known_languages, self._source.language
        tag = known.get(dialect if dialect and language in ("", "chinese") else language)
        thinking = [talker.codec_nothink_id] if tag is None else [talker.codec_think_id]
        tags = [*thinking, talker.codec_think_bos_id, *([] if tag is None else [tag]), talker.codec_think_eos_id]
        embed = net.codes
        beside = [embed[to_device(tags, net.device)], *([] if speaker is None else [speaker[None]])]
        beside.append(embed[talker.codec_pad_id][None])
        codes = torch.cat(beside)
        pads = [config.tts_pad_token_id] * (len(codes) - 1)
        embeddings = net.text_embeddings([*(asked if instruct else []), *turn, *pads, config.tts_bos_token_id])
        embeddings[-len(codes) :] += codes
        return embeddings

    def whole(self, texts: list[int]) -> Tensor:
        """Return the rows of a whole text that precedes the first frame, with its end token."""
        embeddings = self._net.text_embeddings([*texts, self._source.config.tts_eos_token_id])
        return embeddings + self._net.codes[self._talker.codec_pad_id]
