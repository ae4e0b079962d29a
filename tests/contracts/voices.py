"""The voices that run here, each made so small that tests can hear it: real libraries, weights of no value."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from engine.deployment.describe import stages_of
from engine.worker.process.stage_loader import make
from engine.worker.stage import StageConfig

PACKAGES: Mapping[str, tuple[str, ...]] = {
    "tts.sherpa": ("sherpa_onnx", "onnx"), "tts.pocket": ("pocket_tts",), "tts.phonon": ("ptts", "pocket_tts"),
    "qwen3_tts": ("transformers",),
}  # fmt: skip
"""What a test needs of each."""
CLAUSES = ("tts.sherpa", "tts.pocket", "tts.phonon")
"""Those that speak clause by clause, one stage each."""
CLONING = ("tts.pocket", "tts.phonon", "qwen3_tts")
"""Those that make voices from recordings."""
END_LOGIT = 5.0
"""What makes the end of an answer likely, which random weights seldom come to."""


@dataclass(frozen=True, slots=True)
class VoiceOf:
    """A voice of a stage, or of a family's, which speaks English, and means nothing."""

    use: str
    folder: Path

    def stages(self, **options: Any) -> list[Any]:
        """The stage, or all of the family's."""
        config = StageConfig(weights=self.folder, options=options, slots=32)
        if self.use in CLAUSES:
            return [make(self.use, "voice", 0, config)]
        line: list[Any] = [make(one.use, one.name, n, config) for n, one in enumerate(stages_of(self.use, None, {}))]
        line[0].net.logit_mask[line[0].net.shape.end] = END_LOGIT
        return line


def small_voice(use: str, folder: Path, clones: bool = False) -> VoiceOf:
    """A voice, or one whose options may name recordings. Skips the test where a package of it is missing."""
    for package in PACKAGES[use]:
        pytest.importorskip(package)
    if use == "tts.sherpa":
        from tests.engine.worker.stages.tts.tiny_voices import vits

        return VoiceOf(use, vits(folder))
    if use == "tts.pocket":
        from tests.engine.worker.stages.tts.tiny_pocket import pocket

        return VoiceOf(use, pocket(folder))
    if use == "qwen3_tts":
        from tests.oracles.tiny_qwen3_tts import Sizes, make

        return VoiceOf(use, make(folder / "voice", Sizes(kind="base" if clones else "custom_voice")))
    from tests.engine.worker.stages.tts.tiny_phonon import phonon

    return VoiceOf(use, phonon(folder / "voice"))
