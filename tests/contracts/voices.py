"""The voices that run here, each made so small that tests can hear it: real libraries, weights of no value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.worker.host import make
from engine.worker.stage import StageConfig

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "tts.sherpa": ("sherpa_onnx", "onnx"), "tts.pocket": ("pocket_tts",), "tts.phonon": ("ptts", "pocket_tts"),
}  # fmt: skip
"""What a test needs of each."""
CLONING = ("tts.pocket", "tts.phonon")
"""Those that make voices from recordings."""


@dataclass(frozen=True, slots=True)
class VoiceOf:
    """A voice of a stage, English, of no meaning."""

    use: str
    folder: Path

    def stage(self, **options: Any) -> Any:
        return make(self.use, "voice", 0, StageConfig(weights=self.folder, options=options, slots=32))


def small_voice(use: str, folder: Path) -> VoiceOf:
    """Skips the test where a package of it is missing."""
    for package in PACKAGES[use]:
        pytest.importorskip(package)
    if use == "tts.sherpa":
        from tests.engine.worker.stages.tts.tiny_voices import vits

        return VoiceOf(use, vits(folder))
    if use == "tts.pocket":
        from tests.engine.worker.stages.tts.tiny_pocket import pocket

        return VoiceOf(use, pocket(folder))
    from tests.engine.worker.stages.tts.tiny_phonon import phonon

    return VoiceOf(use, phonon(folder / "voice"))
