"""The facts of a checkpoint that its stages share: its config, its voices, its ids with a meaning."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

import torch

from engine.core import Request
from engine.errors import ConfigError, RequestError, WeightsError
from engine.worker.nn.device import settle
from engine.worker.nn.weights import Checkpoint, Reader, find, read_json
from engine.worker.omni.marks import Marks
from engine.worker.omni.positions import RopePositions
from engine.worker.omni.sound import AudioLayout
from engine.worker.omni.talker_feed import TalkerFeed
from engine.worker.stage import StageConfig

CONTEXT = 8192  # tokens of a prompt and its answer, unless the options say otherwise
PIECE = 256  # tokens of a prompt that one step prefills
REMEMBER_MB = 256  # megabytes of computed prompts of sessions that may go on, in each of thinker and talker
GRAPHS = {"auto": "auto", "on": True, "off": False}  # YAML reads the last two as truth values
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
THINKER = 0  # the thinker's stream of randomness; a family numbers its others from 1


class Source(ABC):
    """The checkpoint as every stage sees it. A family names itself, its architecture, its config and its options."""

    family: ClassVar[str]
    architecture: ClassVar[str]
    config_class: ClassVar[Any]
    files: ClassVar[tuple[str, ...]] = ()
    """Files of the checkpoint beside those that all have."""
    options: ClassVar[frozenset[str]] = frozenset({"context", "graphs", "piece", "remember_mb"})

    def __init__(self, config: StageConfig) -> None:
        torch.set_num_threads(config.threads)
        folder = find(config.weights, self.files)
        self.checkpoint = Checkpoint(folder, self.architecture)
        logging.getLogger("transformers.modeling_rope_utils").setLevel(logging.ERROR)  # it does not know M-RoPE's keys
        self.config: Any = self.config_class.from_pretrained(folder, local_files_only=True)
        self.device = torch.device(f"cuda:{config.device}" if config.device.isdigit() else config.device)
        if config.dtype not in DTYPES:
            raise WeightsError(f"dtype: {config.dtype!r} is neither float32 nor bfloat16")
        self.dtype = DTYPES[config.dtype]
        if unknown := sorted(config.options.keys() - self.options):
            raise ConfigError(f"options: {', '.join(unknown)}: unknown; there are {', '.join(sorted(self.options))}")
        self.folder, self.slots = folder, config.slots
        self.context = int(config.options.get("context", min(CONTEXT, self.text.max_position_embeddings)))
        self.piece = int(config.options.get("piece", PIECE))
        self.remembered = int(float(config.options.get("remember_mb", REMEMBER_MB)) * 2**20)
        settle(self.device)
        self.static = self._static(config.options.get("graphs", "auto"))
        """Whether decode steps are computed over static buffers, as graphs where the device has such."""

    @cached_property
    @abstractmethod
    def voices(self) -> Mapping[str, Any]:
        """The checkpoint's facts of each voice, by the voice's id."""

    @cached_property
    @abstractmethod
    def marks(self) -> Marks:
        """Asked for at every step."""

    @cached_property
    @abstractmethod
    def positions(self) -> RopePositions:
        """Return the rule by which rows of a prompt get their rope positions."""

    @cached_property
    @abstractmethod
    def audio(self) -> AudioLayout:
        """Return how the encoder hears. Raises WeightsError for options that the checkpoint's does not allow."""

    @cached_property
    @abstractmethod
    def talker_feed(self) -> TalkerFeed:
        """Return what the thinker tells the talker."""

    def _static(self, wanted: Any) -> bool:
        wanted = GRAPHS.get(wanted, wanted) if isinstance(wanted, str) else wanted
        if wanted not in list(GRAPHS.values()):
            raise ConfigError(f"options.graphs: {wanted!r} is none of {', '.join(GRAPHS)}")
        return self.device.type == "cuda" if wanted == "auto" else wanted

    @cached_property
    def text(self) -> Any:
        """The text model's config; the config's own attributes take microseconds each."""
        return self.config.thinker_config.text_config

    def reader(self, prefix: str, dtype: torch.dtype | None = None) -> Reader:
        """A stage's weights; a terminal is shown how far they have been read."""
        self.checkpoint.expect(prefix)
        return Reader(self.checkpoint, prefix, self.device, dtype or self.dtype)

    def voice(self, request: Request) -> Any:
        """The checkpoint's facts of the request's voice, of its first one where the request names none."""
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
