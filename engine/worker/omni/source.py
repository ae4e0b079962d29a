"""Facts about a checkpoint that its stages share: its configuration, voices and special token ids."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from functools import cached_property
from typing import Any, ClassVar

from torch import Tensor

from engine.core import Request
from engine.errors import ConfigError, RequestError
from engine.worker.nn.checkpoint_source import CheckpointSource
from engine.worker.nn.settings import settings_of
from engine.worker.omni.positions import RopePositions
from engine.worker.omni.sound import AudioLayout
from engine.worker.omni.special_tokens import SpecialTokens
from engine.worker.omni.talker_feed import TalkerFeed
from engine.worker.stage import StageConfig

CONTEXT = 8192  # tokens of a prompt and its answer, unless the options say otherwise
PIECE = 256  # tokens of a prompt that one step prefills
REMEMBER_MB = 256  # megabytes of the prefix cache, for each of thinker and talker
THINKER = 0  # the thinker's random stream; a family numbers its other streams from 1


class OmniSource(CheckpointSource, ABC):
    """A checkpoint, as its stages see it. Subclasses set the family, the architecture, the defaults and the options."""

    family: ClassVar[str]
    architecture: ClassVar[str]
    defaults: ClassVar[Mapping[str, Any]]
    """The fields of config.json that the stages read, with default values."""
    files: ClassVar[tuple[str, ...]] = ()
    """Further files of the checkpoint, in addition to those that all checkpoints have."""
    options: ClassVar[frozenset[str]] = frozenset(
        {"cache_tokens", "context", "graphs", "kernels", "piece", "remember_mb"}
    )
    """The names of the stages' ``options``.

    - ``context``: maximum positions of a request, for its prompt and answer.
    - ``cache_tokens``: positions that all requests of the thinker share, at least one context. Each request gets as
      many as its prompt and its longest answer need (``max_output_tokens``, at most ``server.limits.answer_tokens``);
      if there is no room, it waits. Without it, every request has a full context. The talker's cache shrinks in
      proportion (``shared``).
    - ``piece``: prompt tokens per prefill step.
    - ``remember_mb``: megabytes of the prefix cache, for each of thinker and talker.
    - ``graphs``: whether decode steps, prompts, audio and codec frames run as CUDA graphs: ``auto`` (if there is a
      GPU), ``on`` or ``off``.
    - ``kernels``: whether Triton kernels compute attention, experts and the operations between matrix products:
      ``auto`` (on NVIDIA GPUs from the A100 on), ``on`` or ``off``.
    """

    def __init__(self, config: StageConfig) -> None:
        graphs = config.options.get("graphs", "auto")
        kernels = config.options.get("kernels", "auto")
        super().__init__(config, self.architecture, graphs, kernels, self.files)
        self.config: Any = settings_of(self.checkpoint.config, self.defaults)
        if unknown := sorted(config.options.keys() - self.options):
            raise ConfigError(f"options: unknown key {', '.join(unknown)}; there are {', '.join(sorted(self.options))}")
        self.context = int(config.options.get("context", min(CONTEXT, self.text.max_position_embeddings)))
        self.cache_tokens = self._cache_tokens(config.options.get("cache_tokens"))
        """Positions that all requests of the thinker share; None: each request has a full context."""
        self.piece = int(config.options.get("piece", PIECE))
        self.remembered = int(float(config.options.get("remember_mb", REMEMBER_MB)) * 2**20)

    @cached_property
    @abstractmethod
    def voices(self) -> Mapping[str, Any]:
        """The checkpoint's data for each voice, by voice id."""

    @cached_property
    @abstractmethod
    def marks(self) -> SpecialTokens:
        """Return the special token ids. Cached, because every step uses them."""

    @cached_property
    @abstractmethod
    def positions(self) -> RopePositions:
        """Return the rule for rope positions."""

    @cached_property
    @abstractmethod
    def audio(self) -> AudioLayout:
        """Return the audio encoder's layout. Raises WeightsError if the checkpoint has unsupported settings."""

    @cached_property
    @abstractmethod
    def talker_feed(self) -> TalkerFeed:
        """Return the conversion of the thinker's output to the talker's input."""

    def _cache_tokens(self, wanted: Any) -> int | None:
        if wanted is not None and int(wanted) < self.context:
            raise ConfigError(
                f"options.cache_tokens: {wanted} positions are fewer than one context of {self.context}; "
                "raise cache_tokens, or lower options.context."
            )
        return None if wanted is None else int(wanted)

    def shared(self, length: int) -> int | None:
        """Return the positions that a stage's requests share, if each may use ``length``.

        It allows as many full requests as ``cache_tokens`` allows full contexts. None: nothing is shared.
        """
        return None if self.cache_tokens is None else self.cache_tokens * length // self.context

    @cached_property
    def text(self) -> Any:
        """The text model's configuration."""
        return self.config.thinker_config.text_config

    def text_table(self) -> Tensor:
        """Return the thinker's text embeddings [ids, width] in the file's dtype."""
        return self.checkpoint.tensor(
            "thinker.model.embed_tokens.weight", (self.text.vocab_size, self.text.hidden_size)
        )

    def voice(self, request: Request) -> Any:
        """Return the data of the request's voice, or of the first voice if the request names none.

        Raises RequestError for an unknown voice.
        """
        name = (request.voice or next(iter(self.voices), "")).lower()
        if not self.voices:
            raise RequestError("voice: this model has no voices, so it cannot speak; request text only")
        if name not in self.voices:
            raise RequestError(f"voice: {request.voice!r} is not one of {', '.join(self.voices)}")
        return self.voices[name]
