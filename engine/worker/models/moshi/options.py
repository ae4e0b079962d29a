"""Stage options of Moshi, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.deployment.config import build
from engine.errors import ConfigError
from engine.worker.stage import switched


@dataclass(frozen=True, slots=True, kw_only=True)
class MoshiOptions:
    """Stage ``options`` of the family."""

    voices: str = ""
    """Folder of PersonaPlex's voices (``.pt`` files). A file's name is the voice's name."""
    voice: str = ""
    """Default voice; empty: the first one."""
    instructions: str = ""
    """Default text prompt of PersonaPlex. A session's own instructions replace it."""
    prompts: bool = False
    """Whether the model reads instructions, as PersonaPlex does. Voices imply it."""
    context: int = 0
    """Frames that a session remembers, 12.5 per second; 0: as many as the checkpoint was trained with."""
    text_temperature: float = 0.7
    text_top_k: int = 25
    audio_temperature: float = 0.8
    audio_top_k: int = 250
    piece: int = 32
    """Maximum positions of a prompt per step."""
    graphs: bool | str = "auto"
    """Whether a step is one CUDA graph: ``auto`` (on a GPU), ``on`` or ``off``."""
    kernels: bool | str = "auto"
    """Whether to use Triton kernels: ``auto`` (on NVIDIA GPUs from the A100 on), ``on`` or ``off``. Not yet run on a
    GPU in this family.
    """

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> MoshiOptions:
        """Parse and check a stage's options. Raises ConfigError."""
        options: MoshiOptions = build(cls, dict(mapping), "options")
        for option in ("graphs", "kernels"):
            switched(option, getattr(options, option), False)
        for name, least in (("context", 0), ("piece", 1), ("text_top_k", 0), ("audio_top_k", 0)):
            if getattr(options, name) < least:
                raise ConfigError(f"options.{name} must be at least {least} (got {getattr(options, name)}).")
        for name in ("text_temperature", "audio_temperature"):
            if not 0 < getattr(options, name) < 10:
                raise ConfigError(f"options.{name} must be between 0 and 10 (got {getattr(options, name)}).")
        return options
