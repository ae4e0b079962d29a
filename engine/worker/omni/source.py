"""The facts of a checkpoint that its stages share: its config, its voices, its ids with a meaning."""

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
REMEMBER_MB = 256  # megabytes of computed prompts of sessions that may go on, in each of thinker and talker
THINKER = 0  # the thinker's stream of randomness; a family numbers its others from 1


class OmniSource(CheckpointSource, ABC):
    """The checkpoint as every stage sees it. A family names itself, its architecture, its defaults and its options."""

    family: ClassVar[str]
    architecture: ClassVar[str]
    defaults: ClassVar[Mapping[str, Any]]
    """The fields of config.json that its stages read, with the values of those that a file leaves out."""
    files: ClassVar[tuple[str, ...]] = ()
    """Files of the checkpoint beside those that all have."""
    options: ClassVar[frozenset[str]] = frozenset(
        {"cache_tokens", "context", "graphs", "kernels", "piece", "remember_mb"}
    )
    """The ``options`` of the stages.

    ``context``: positions that a request may have, of its prompt and its answer. ``cache_tokens``: positions that all
    requests of the thinker share, at least one context; each gets as many as its prompt and its longest answer need
    (``max_output_tokens``, at most ``server.limits.answer_tokens``), and who finds no room waits in its turn. Without
    it every request has a full context. The talker's requests share as many full ones (``shared``). ``piece``: tokens
    of prompts that one step takes in. ``remember_mb``: megabytes of computed prompts that thinker and talker keep each.
    ``graphs``: whether decode steps, prompts, sounds and codec frames are CUDA graphs, one for each of a few sizes:
    ``auto`` (where there is a GPU), ``on`` or ``off``. ``kernels``: whether kernels in Triton attend, compute what
    lies between two products, and answer for experts: ``auto`` (on NVIDIA's GPUs from the A100 on), ``on`` or ``off``.
    """

    def __init__(self, config: StageConfig) -> None:
        graphs = config.options.get("graphs", "auto")
        kernels = config.options.get("kernels", "auto")
        super().__init__(config, self.architecture, graphs, kernels, self.files)
        self.config: Any = settings_of(self.checkpoint.config, self.defaults)
        if unknown := sorted(config.options.keys() - self.options):
            raise ConfigError(f"options: {', '.join(unknown)}: unknown; there are {', '.join(sorted(self.options))}")
        self.context = int(config.options.get("context", min(CONTEXT, self.text.max_position_embeddings)))
        self.cache_tokens = self._cache_tokens(config.options.get("cache_tokens"))
        """Positions that all requests of the thinker share; None: each has a full context."""
        self.piece = int(config.options.get("piece", PIECE))
        self.remembered = int(float(config.options.get("remember_mb", REMEMBER_MB)) * 2**20)

    @cached_property
    @abstractmethod
    def voices(self) -> Mapping[str, Any]:
        """The checkpoint's facts of each voice, by the voice's id."""

    @cached_property
    @abstractmethod
    def marks(self) -> SpecialTokens:
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

    def _cache_tokens(self, wanted: Any) -> int | None:
        if wanted is not None and int(wanted) < self.context:
            raise ConfigError(
                f"options.cache_tokens: {wanted} positions are less than one context of {self.context}; "
                "raise cache_tokens, or lower options.context."
            )
        return None if wanted is None else int(wanted)

    def shared(self, length: int) -> int | None:
        """Positions that requests share in a stage where each may use so many: of as many full ones as
        ``cache_tokens`` are full contexts."""
        return None if self.cache_tokens is None else self.cache_tokens * length // self.context

    @cached_property
    def text(self) -> Any:
        """The text model's config."""
        return self.config.thinker_config.text_config

    def text_table(self) -> Tensor:
        """Return the thinker's embeddings of text ids [ids, width], as they lie in the file."""
        return self.checkpoint.tensor(
            "thinker.model.embed_tokens.weight", (self.text.vocab_size, self.text.hidden_size)
        )

    def voice(self, request: Request) -> Any:
        """The checkpoint's facts of the request's voice, of its first one where the request names none."""
        name = (request.voice or next(iter(self.voices), "")).lower()
        if name not in self.voices:
            raise RequestError(
                f"voice: {request.voice!r} is not one of {', '.join(self.voices) or 'this model (mute)'}"
            )
        return self.voices[name]
