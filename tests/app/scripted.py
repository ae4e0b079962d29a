"""The scripted family's configuration, as the tests serve it: all that a server in a process of its own needs."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

from engine import EngineSpec, load_config

ROOT = Path(__file__).parents[2]


def script_spec(**server: Any) -> EngineSpec:
    """The scripted family in this very process, with short words, and the given ``server:`` section."""
    spec = load_config(ROOT / "configs" / "script.yaml")
    section = {"host": "127.0.0.1", "port": 0, **server}
    patient = dataclasses.replace(spec.heartbeat, timeout_s=20.0)  # other tests may hold the processors for a second
    return dataclasses.replace(
        spec, launcher="inline", server=section, options={"frames_per_word": 2}, heartbeat=patient
    )


def duplex_spec(**server: Any) -> EngineSpec:
    """The scripted duplex model in this very process, with the given ``server:`` section."""
    spec = load_config(ROOT / "configs" / "script_duplex.yaml")
    patient = dataclasses.replace(spec.heartbeat, timeout_s=20.0)
    section = {"host": "127.0.0.1", "port": 0, **server}
    return dataclasses.replace(spec, launcher="inline", server=section, heartbeat=patient)
