"""Workers of the omni families and of Qwen3-TTS load and serve where transformers cannot be imported.

Each runs in a process of its own, since the oracles of the other tests have imported it here.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from engine.audio.wav import wav
from tests.oracles import tiny_qwen2_5_omni, tiny_qwen3_omni, tiny_qwen3_tts

RUN = """
import asyncio, sys
sys.modules["transformers"] = None  # importing it fails from here on
import numpy as np
from engine import AudioPart, Engine, ImagePart, Message, Request, TextPart, parse_config

async def main(parts):
    said = (Message("user", parts),)
    async with Engine(parse_config(sys.argv[1])) as engine:
        request = Request(id="r", session="s", messages=said, say=SAY, max_text_tokens=4, max_audio_s=0.4)
        async with engine.open(request) as chunks:
            print(sorted({type(one).__name__ for one in [one async for one in chunks]}))

"""
MEDIA = """
SAY = None
sound = (9000 * np.sin(np.arange(9600) / 6)).astype(np.int16)
picture = np.arange(64 * 96 * 3, dtype=np.uint32).astype(np.uint8).reshape(64, 96, 3)
asyncio.run(main((TextPart("Hello."), AudioPart(sound), ImagePart(picture))))
"""
SPEECH = """
SAY = "Hello there, how are you?"
asyncio.run(main((TextPart("Hello."),)))
"""
OMNI = """
model: {family}
weights: {folder}
launcher: inline
workers: [{{stages: [thinker, talker, code2wav]}}]
options: {{context: 512}}
"""
VOICE = """
model: qwen3_tts
weights: {folder}
launcher: inline
workers: [{{stages: [talker, code2wav]}}]
options:
  context: 512
  clones: [{{name: me, reference: {wave}, text: "Hello.", consent: "A test's own sound."}}]
"""


def served(config: str, script: str) -> str:
    found = subprocess.run([sys.executable, "-c", RUN + script, config], capture_output=True, text=True)
    assert found.returncode == 0, found.stderr
    return found.stdout


@pytest.mark.parametrize(
    ("family", "make"), [("qwen3_omni", tiny_qwen3_omni.make), ("qwen2_5_omni", tiny_qwen2_5_omni.make)]
)
def test_an_omni_model_hears_sees_and_speaks(tmp_path: Path, family: str, make: Callable[[Path], Path]) -> None:
    folder = make(tmp_path / "made")
    said = served(OMNI.format(family=family, folder=folder), MEDIA)
    assert "Audio" in said
    assert "Text" in said


def test_a_cloned_voice_speaks(tmp_path: Path) -> None:
    folder = tiny_qwen3_tts.make(tmp_path / "made", tiny_qwen3_tts.Sizes(kind="base"))
    recording = tmp_path / "me.wav"
    recording.write_bytes(wav(np.random.default_rng(0).integers(-4000, 4000, 64_000, dtype=np.int16)))
    assert "Audio" in served(VOICE.format(folder=folder, wave=recording), SPEECH)
