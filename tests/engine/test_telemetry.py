"""Libraries that report their use to their makers do not do so here."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

LISTENS = "from app.realtime.input.turn_detector import Silero; Silero()"
SPEAKS = "import engine.worker.models.nano.hush as one; one.ort.get_available_providers()"


@pytest.mark.parametrize("code", [LISTENS, SPEAKS])
def test_onnxruntime_keeps_no_number_of_this_machine_and_no_reports(tmp_path: Path, code: str) -> None:
    """It lays reports for its makers into the user's cache, from where it sends them."""
    clean = {name: value for name, value in os.environ.items() if name != "ORT_DISABLE_TELEMETRY"}
    home = clean | {"HOME": str(tmp_path), "XDG_CACHE_HOME": str(tmp_path / "cache")}
    subprocess.run([sys.executable, "-c", code], env=home, check=True)
    assert not list(tmp_path.rglob("*.db"))
    assert not list(tmp_path.rglob("deviceid"))


@pytest.mark.parametrize("first", ["engine", "app.pulling.hugging_face", "engine.worker.nn.weights"])
def test_huggingface_hub_reports_nothing_and_asks_for_no_registry(first: str) -> None:
    """Unless the user chose otherwise, it fetches a list of agents from the hub to report which one runs it."""
    clean = {name: value for name, value in os.environ.items() if name != "HF_HUB_DISABLE_TELEMETRY"}
    code = f"import {first}, huggingface_hub.constants as hub; raise SystemExit(not hub.HF_HUB_DISABLE_TELEMETRY)"
    subprocess.run([sys.executable, "-c", code], env=clean, check=True)
