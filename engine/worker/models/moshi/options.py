"""Stage options of Moshi, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.deployment.config import build
from engine.errors import ConfigError


@dataclass(frozen=True, slots=True, kw_only=True)
class MoshiOptions:
    """Stage ``options`` of the family."""

    voices: str = ""
    """Folder of PersonaPlex's voices (``.pt`` files), which also enables instructions."""
    voice: str = ""
    """Default voice; empty: the first one."""
    instructions: str = ""
    """Default instructions."""
    context: int = 0
    """Frames that a session remembers; 0: as trained."""

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> MoshiOptions:
        """Parse and check a stage's options. Raises ConfigError."""
        options: MoshiOptions = build(cls, dict(mapping), "options")
        if options.context < 0:
            raise ConfigError(f"options.context must be at least 0 (got {options.context}).")
        return options
