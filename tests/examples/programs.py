"""The examples as a reader runs them: programs of their own, on a server's address."""

from __future__ import annotations

import os
import subprocess
import sys
import wave
from collections.abc import Mapping
from pathlib import Path

import httpx
import numpy as np

from engine.core import Pcm

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples"
STAND_IN = Path(__file__).with_name("stand_in")
PATIENCE_S = 100
RATE_HZ = 24_000


def environment(**more: str) -> Mapping[str, str]:
    """The environment of a program that finds Parley, and a stand-in for the microphone."""
    paths = [str(ROOT), str(STAND_IN), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), **more}


def python(name: str, *arguments: str) -> list[str]:
    """The command that runs an example in Python."""
    return [sys.executable, "-W", "error", str(EXAMPLES / name), *arguments]


def ran(command: list[str], folder: Path) -> str:
    """Run an example to its end, and return what it printed."""
    result = subprocess.run(
        command, cwd=folder, env=environment(), capture_output=True, text=True, timeout=PATIENCE_S, check=False
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def spoken(http: str, text: str) -> Pcm:
    """A sentence in a voice of the server's: int16 at 24 kHz."""
    said = {"model": "nano", "input": text, "voice": "slt", "response_format": "pcm"}
    answer = httpx.post(f"{http}/v1/audio/speech", json=said, timeout=PATIENCE_S)
    return np.frombuffer(answer.raise_for_status().content, "<i2")


def written(path: Path, pcm: Pcm) -> Path:
    """A WAV file of int16 samples at 24 kHz."""
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        file.writeframes(pcm.tobytes())
    return path


def sound_s(path: Path) -> float:
    """Seconds of sound in a WAV file that is not silent."""
    with wave.open(str(path)) as file:
        assert np.abs(np.frombuffer(file.readframes(file.getnframes()), "<i2")).max() > 1000
        return file.getnframes() / file.getframerate()
