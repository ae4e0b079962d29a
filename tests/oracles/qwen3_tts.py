"""The cases that Qwen3-TTS is held against, and what the vendor's package says of them."""

from __future__ import annotations

import hashlib
import json
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import soundfile

from tests.conformance.environments import ORACLES, Environment
from tests.oracles.tiny_qwen3_tts import Sizes

RATE_HZ = 24_000
ENVIRONMENT = Environment("qwen_tts", ORACLES)
TEXT = "Hello there, how are you doing today? I'm well."
WORDS = "The weather is fine."
MANY = " ".join([WORDS] * 6)
"""More tokens than the recording has frames."""
CHINESE = "今天天气很好，我们去公园玩吧。"


@dataclass(frozen=True, slots=True)
class Case:
    """One answer: the options of our stages, the voice, the text, and how long it is; greedy."""

    name: str
    sizes: Sizes
    voice: str
    text: str = TEXT
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    words: str | None = None
    """What is said in the recording that is cloned; empty: only the speaker's embedding is used."""
    frames: int = 16

    @property
    def whole(self) -> bool:
        return self.options.get("layout") == "whole"

    def vendors(self, recording: Path) -> dict[str, Any]:
        """The arguments of the vendor's function."""
        given: dict[str, Any] = {
            "name": self.name, "frames": self.frames, "text": self.text, "non_streaming_mode": self.whole,
            "language": self.options.get("language") or "Auto",
        }  # fmt: skip
        if self.sizes.kind == "custom_voice":
            return given | {"speaker": self.voice, "instruct": self.options.get("instruct")}
        if self.sizes.kind == "voice_design":
            return given | {"instruct": self.options["designs"][0]["instruct"]}
        return given | {"reference": str(recording), "ref_text": self.words, "x_vector_only_mode": not self.words}

    def ours(self, recording: Path) -> dict[str, Any]:
        """The options of our stages."""
        if self.words is None:
            return dict(self.options)
        clone = {"name": self.voice, "reference": str(recording), "text": self.words, "consent": "A test's own sound."}
        return {**self.options, "clones": [clone]}


BIG, SMALL = Sizes(), Sizes(size="0b6", predictor_width=64, seed=1)
DESIGN, BASE = Sizes(kind="voice_design", seed=2), Sizes(kind="base", seed=3)
NARRATOR = {"designs": [{"name": "narrator", "instruct": "A calm, low voice of an old man."}]}
CASES = (
    Case("english", BIG, "vivian", options={"language": "english"}),
    Case("told how", BIG, "ryan", options={"instruct": "A calm voice."}),
    Case("dialect", BIG, "eric", CHINESE),
    Case("whole", BIG, "vivian", options={"layout": "whole", "language": "german"}),
    Case("small", SMALL, "vivian"),
    Case("small, whole", SMALL, "ryan", options={"layout": "whole"}),
    Case("designed", DESIGN, "narrator", options=NARRATOR),
    Case("designed, whole", DESIGN, "narrator", options={**NARRATOR, "layout": "whole"}),
    Case("embedding", BASE, "anna", words=""),
    Case("embedding, whole", BASE, "anna", words="", options={"layout": "whole"}),
    Case("in context", BASE, "anna", words=WORDS),
    Case("in context, many words", BASE, "anna", words=MANY),
    Case("in context, whole", BASE, "anna", words=WORDS, options={"layout": "whole", "language": "english"}),
)


def write_recording(path: Path, seconds: float = 3.21, rate_hz: int = RATE_HZ) -> Path:
    """Something like a voice: a pitch that wanders, harmonics, and breath."""
    times = np.arange(round(seconds * rate_hz)) / rate_hz
    phase = 2 * np.pi * np.cumsum(140 + 30 * np.sin(5 * times)) / rate_hz
    wave = sum(np.sin(n * phase) / n for n in range(1, 9)) * (0.6 + 0.4 * np.sin(9 * times))
    noise = np.random.default_rng(0).normal(0, 0.05, len(times))
    soundfile.write(path, (0.2 * (wave + noise)).astype(np.float32), rate_hz, subtype="FLOAT")
    return path


def ask(checkpoint: Path, cases: Sequence[Case], recording: Path, folder: Path) -> dict[str, np.ndarray]:
    """What the vendor's package gives: codes [frames, 16] and sound of each case, by name; kept in its environment."""
    given, program = folder / f"{checkpoint.name}.json", ENVIRONMENT.recipe / "reference.py"
    text = json.dumps([case.vendors(recording) | {"reference": ""} for case in cases])
    weights = [checkpoint / "model.safetensors", checkpoint / "speech_tokenizer" / "model.safetensors"]
    parts = [text.encode(), *(path.read_bytes() for path in (*weights, checkpoint / "config.json", recording, program))]
    kept = ENVIRONMENT.folder / "said" / f"{hashlib.sha256(b''.join(parts)).hexdigest()[:32]}.npz"
    if kept.exists():
        return dict(np.load(kept))
    kept.parent.mkdir(exist_ok=True)
    given.write_text(json.dumps([case.vendors(recording) for case in cases]), encoding="utf-8")
    command = [ENVIRONMENT.tool, str(program), str(checkpoint), str(given), str(kept)]
    result = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr[-4000:]
    assert "newly initialized" not in result.stderr + result.stdout, "the checkpoint lacks weights"
    return dict(np.load(kept))
