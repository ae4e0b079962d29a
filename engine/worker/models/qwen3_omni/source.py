"""The facts of a checkpoint that its stages share: its config, its voices, its ids with a meaning."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Qwen3OmniMoeConfig

from engine.core import Request
from engine.errors import ConfigError, RequestError, WeightsError
from engine.worker.nn.device import settle
from engine.worker.nn.sampler import BatchSamplingParams
from engine.worker.nn.weights import Checkpoint, Reader, find, read_json
from engine.worker.stage import StageConfig
from engine.worker.stage_request import StageRequest

ARCHITECTURE = "Qwen3OmniMoeForConditionalGeneration"
CONTEXT = 8192  # tokens of a prompt and its answer, unless the options say otherwise
PIECE = 256  # tokens of a prompt that one step prefills
REMEMBER_MB = 256  # megabytes of computed prompts of sessions that may go on, in each of thinker and talker
OPTIONS = {"context", "graphs", "piece", "remember_mb", "window_s"}
MAX_PENDING = 4096  # a row is one id: text need not wait for the voice, which eats twelve a second
FRAME_S = 0.08
GRAPHS = {"auto": "auto", "on": True, "off": False}  # YAML reads the last two as truth values
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
THINKER, TALKER, PREDICTOR = range(3)  # streams of randomness


class Source:
    """The checkpoint as every stage sees it."""

    def __init__(self, config: StageConfig) -> None:
        torch.set_num_threads(config.threads)
        folder = find(config.weights)
        self.checkpoint = Checkpoint(folder, ARCHITECTURE)
        logging.getLogger("transformers.modeling_rope_utils").setLevel(logging.ERROR)  # it does not know M-RoPE's keys
        self.config: Any = Qwen3OmniMoeConfig.from_pretrained(folder, local_files_only=True)
        self.device = torch.device(f"cuda:{config.device}" if config.device.isdigit() else config.device)
        if config.dtype not in DTYPES:
            raise WeightsError(f"dtype: {config.dtype!r} is neither float32 nor bfloat16")
        self.dtype = DTYPES[config.dtype]
        if unknown := sorted(config.options.keys() - OPTIONS):
            raise ConfigError(f"options: {', '.join(unknown)}: unknown; there are {', '.join(sorted(OPTIONS))}")
        self.folder, self.slots = folder, config.slots
        self.context = int(config.options.get("context", min(CONTEXT, self.text.max_position_embeddings)))
        self.piece = int(config.options.get("piece", PIECE))
        self.remembered = int(float(config.options.get("remember_mb", REMEMBER_MB)) * 2**20)
        self.window_s: float | None = config.options.get("window_s")
        settle(self.device)
        self.static = self._static(config.options.get("graphs", "auto"))
        """Whether decode steps are computed over static buffers, as graphs where the device has such."""

    def _static(self, wanted: Any) -> bool:
        wanted = GRAPHS.get(wanted, wanted) if isinstance(wanted, str) else wanted
        if wanted not in list(GRAPHS.values()):
            raise ConfigError(f"options.graphs: {wanted!r} is none of {', '.join(GRAPHS)}")
        return self.device.type == "cuda" if wanted == "auto" else wanted

    @cached_property
    def text(self) -> Any:
        """The text model's config; the config's own attributes take microseconds each."""
        return self.config.thinker_config.text_config

    @cached_property
    def voices(self) -> dict[str, int]:
        """The id of each voice."""
        return dict(self.config.talker_config.speaker_id or {}) if self.config.enable_audio_output else {}

    def reader(self, prefix: str, dtype: torch.dtype | None = None) -> Reader:
        """A stage's weights; a terminal is shown how far they have been read."""
        self.checkpoint.expect(prefix)
        return Reader(self.checkpoint, prefix, self.device, dtype or self.dtype)

    def voice(self, request: Request) -> int:
        """The id of the request's voice, the checkpoint's first where it names none."""
        name = (request.voice or next(iter(self.voices), "")).lower()
        if name not in self.voices:
            raise RequestError(
                f"voice: {request.voice!r} is not one of {', '.join(self.voices) or 'this model (mute)'}"
            )
        return self.voices[name]

    @cached_property
    def generation(self) -> dict[str, Any]:
        file = self.folder / "generation_config.json"
        return read_json(file) if file.exists() else {}

    @cached_property
    def marks(self) -> Marks:
        """Asked for at every step."""
        whole = self.config
        thinker = whole.thinker_config
        return Marks(
            turn=whole.im_start_token_id, user=whole.user_token_id, audio=thinker.audio_token_id,
            image=thinker.image_token_id, video=thinker.video_token_id, audio_start=thinker.audio_start_token_id,
            audio_end=thinker.audio_end_token_id, pad=whole.tts_pad_token_id, begin=whole.tts_bos_token_id,
            end=whole.tts_eos_token_id,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Marks:
    """Ids with a meaning: turns, placeholders of media, and how the talker's text begins, ends and goes on."""

    turn: int
    user: int
    audio: int
    image: int
    video: int
    audio_start: int
    audio_end: int
    pad: int
    begin: int
    end: int

    @property
    def media(self) -> tuple[int, int, int]:
        """The placeholders of sound, pictures and video."""
        return self.audio, self.image, self.video

    def stand(self, ids: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Return which ids are placeholders; of so few, numpy's own search takes twenty times as long."""
        return (ids == self.audio) | (ids == self.image) | (ids == self.video)


def by_slot(req: StageRequest) -> int:
    """Return the key that a batch is sorted by: slots side by side are read without being copied."""
    return req.slot


def to_keep(reqs: Sequence[StageRequest]) -> list[StageRequest]:
    """Choose whose computed state a step keeps first: one request's, since copies for a crowd would hold up its second
    sound."""
    return [req for req in reqs if req.state.unkept][:1]


def batch_params(reqs: Sequence[StageRequest], device: torch.device) -> BatchSamplingParams:
    """Return how each request draws."""
    return BatchSamplingParams.of([req.state.params for req in reqs], device)
