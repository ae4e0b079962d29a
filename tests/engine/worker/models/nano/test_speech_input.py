"""nano without its recogniser, as on a Python without a wheel of it: it answers typed text, and refuses speech."""

from __future__ import annotations

import dataclasses
import subprocess
import sys

import numpy as np
import pytest

from engine import EngineSpec, load_config
from engine.worker.models.nano import speech_input
from tests.app.rig import ROOT, LoudnessVad, running, silence, talking, tone

TOLD = "nano cannot hear on this machine: pocketsphinx has no package for Python"


@pytest.fixture
def spec(monkeypatch: pytest.MonkeyPatch) -> EngineSpec:
    """The built-in model in this process, in which the decoder is not installed."""
    monkeypatch.setattr(speech_input, "find_spec", lambda name: None)
    nano = load_config(ROOT / "configs" / "nano.yaml")
    section = {"host": "127.0.0.1", "port": 0}
    patient = dataclasses.replace(nano.heartbeat, timeout_s=20.0)  # one process does everything
    return dataclasses.replace(nano, launcher="inline", server=section, heartbeat=patient)


async def test_who_speaks_is_told_in_one_sentence_and_who_types_is_answered(
    spec: EngineSpec, caplog: pytest.LogCaptureFixture
) -> None:
    async with running(spec, vad=LoudnessVad) as server, talking(server) as client:
        assert server.service.engine_host.engine is not None
        assert server.service.engine_host.engine.model.abilities == {"text", "image", "tools", "speech"}
        assert TOLD in caplog.text
        await client.append(np.concatenate([tone(1.0), silence(1.0)]))
        spoken = (await client.until("response.done"))["response"]
        assert spoken["status"] == "failed"
        assert spoken["status_details"]["error"]["message"].startswith(TOLD)
        typed = await client.ask("What is two plus three?")
        assert typed["status"] == "completed"
        assert typed["output"][0]["content"][0]["transcript"] == "2 plus 3 is 5."


def test_the_family_is_imported_without_it() -> None:
    code = (
        "import sys; sys.modules['pocketsphinx'] = None; import engine; "
        f"nano = engine.describe(engine.load_config({str(ROOT / 'configs' / 'nano.yaml')!r})); "
        "sys.exit('audio' in nano.abilities)"
    )
    assert subprocess.run([sys.executable, "-c", code]).returncode == 0
