"""The gate of the clients' suite goes red: for each scenario, reports of what must not happen."""

from __future__ import annotations

import base64
import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.conformance import environments
from tests.conformance.checks import CHECKS, OVER_HTTP, OVER_MCP, OVER_RESPONSES, check
from tests.conformance.part import RATE_HZ, Report, riff

SPEECH_S = 1.5


def _sound(seconds: float, loudness: int = 9000) -> str:
    """A file of a square wave, as base64."""
    wave = np.tile(np.array([loudness, -loudness], "<i2"), round(seconds * RATE_HZ / 2))
    return base64.b64encode(riff(wave.tobytes())).decode()


VOICE = Report(transcript="I heard 1.9 seconds.", audio_s=0.96, heard="1.9 seconds")
GOOD = {
    "text": Report(transcript="the quick brown fox", audio_s=0.96),
    "voice": VOICE,
    "tool": Report(
        transcript="The tool says: sunny in Oslo", audio_s=1.44,
        call={"name": "get_weather", "arguments": '{"city": "Oslo"}'},
    ),
    "barge_in": dataclasses.replace(VOICE, interrupted=True, interrupted_audio_s=3.0),
    "truncate": Report(transcript="I said: word0 word1 word2 word3", cut_ms=1000),
    "chat": Report(transcript="the quick brown fox"),
    "speech": Report(sound=_sound(0.96)),
    "transcription": Report(heard="1.5 seconds"),
    "response": Report(transcript="the quick brown fox"),
    "response_tool": Report(
        transcript="The tool says: sunny in Oslo",
        call={"name": "get_weather", "arguments": {"city": "Oslo"}},
    ),
    "response_next": Report(transcript="I said: the quick brown fox"),
    **{
        scenario: Report(
            transcript="The tool says: sunny in Oslo",
            call={"name": "forecast", "arguments": '{"city": "Oslo"}'},
        )
        for scenario in OVER_MCP
    },
}  # fmt: skip
BAD: list[tuple[str, dict[str, Any]]] = [
    ("text", {"transcript": "the quick brown"}),
    ("text", {"audio_s": 0.0}),
    ("text", {"errors": ["unknown_event"]}),
    ("text", {"audio_s": 1.92}),
    ("voice", {"transcript": "I heard 0.0 seconds."}),
    ("voice", {"transcript": "I heard 4.0 seconds.", "heard": "4.0 seconds"}),
    ("voice", {"heard": ""}),
    ("tool", {"call": {"name": "get_weather", "arguments": ""}}),
    ("tool", {"transcript": "The tool says:"}),
    ("barge_in", {"interrupted": False}),
    ("barge_in", {"interrupted_audio_s": 48.0}),
    ("barge_in", {"transcript": "word0 word1"}),
    ("truncate", {"transcript": "I said: " + " ".join(f"word{i}" for i in range(200))}),
    ("truncate", {"transcript": "I said: nothing"}),
    ("truncate", {"cut_ms": None}),
    ("chat", {"transcript": "the quick"}),
    ("chat", {"errors": ["404"]}),
    ("speech", {"sound": _sound(0.48)}),
    ("speech", {"sound": _sound(0.96, loudness=0)}),
    ("transcription", {"heard": ""}),
    ("transcription", {"heard": "0.7 seconds"}),
    ("response", {"transcript": "the quick"}),
    ("response", {"errors": ["404"]}),
    ("response_tool", {"call": {}}),
    ("response_tool", {"transcript": "The tool says:"}),
    ("response_next", {"transcript": "I said: nothing"}),
    ("mcp", {"call": {}}),
    ("mcp_approved", {"transcript": "The tool says:"}),
]


@pytest.mark.parametrize("scenario", [*CHECKS, *OVER_HTTP, *OVER_RESPONSES, *OVER_MCP])
def test_a_good_report_is_taken(scenario: str) -> None:
    check(scenario, GOOD[scenario], SPEECH_S)


@pytest.mark.parametrize(("scenario", "wrong"), BAD)
def test_a_bad_report_is_refused(scenario: str, wrong: dict[str, Any]) -> None:
    with pytest.raises(AssertionError):
        check(scenario, dataclasses.replace(GOOD[scenario], **wrong), SPEECH_S)


PACKAGES = {
    "ai_sdk": ("ai", "@ai-sdk/openai"),
    "langchain": ("langchain-openai",),
    "litellm": ("litellm",),
    "livekit_agents": ("livekit-agents",),
    "open_webui": (),  # an exchange, and nobody's package
    "openai_agents_js": ("@openai/agents-realtime",),
    "openai_agents_python": ("openai-agents",),
    "openai_node": ("openai",),
    "openai_python": ("openai",),
    "pipecat_ai": ("pipecat-ai",),
    "pydantic_ai": ("pydantic-ai-slim",),
}


@pytest.mark.parametrize("environment", [*environments.environments()], ids=lambda one: one.name)
def test_the_documents_name_the_version_that_is_tested(environment: environments.Environment) -> None:
    document = (environments.RECIPES.parents[1] / "app" / "PROTOCOL.md").read_text(encoding="utf-8")
    for package in PACKAGES[environment.name]:
        assert f"{package} {_pinned(environment, package)}" in document


def _pinned(environment: environments.Environment, package: str) -> str:
    if environment.is_python:
        return dict(line.split("==") for line in environment.pins.read_text().splitlines())[package]
    return json.loads(environment.pins.read_text())["packages"][f"node_modules/{package}"]["version"]


@pytest.mark.parametrize("name", ["openai_python", "openai_node"])
def test_a_registry_that_is_not_reached_is_one_sentence(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environments, "MADE", tmp_path)
    monkeypatch.setattr(environments.Environment, "make", lambda one: pytest.fail("there was a registry"))
    nobody = "http://127.0.0.1:9/"
    for variable in ("PIP_INDEX_URL", "npm_config_registry"):
        monkeypatch.setenv(variable, nobody)
    for variable in ("PIP_FIND_LINKS", "PIP_EXTRA_INDEX_URL"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setenv("PIP_NO_CACHE_DIR", "1")
    assert environments.main(["--or-skip", name]) == environments.SKIPPED
    assert environments.main([name]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first == second
    assert first.startswith(f"the clients are not tried: {name}")


def test_a_tool_that_is_missing_is_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(environments, "MADE", tmp_path)
    monkeypatch.setattr(environments.shutil, "which", lambda tool: None)
    assert environments.main(["--or-skip", "openai_node"]) == environments.SKIPPED
    assert "needs npm, which is not installed" in capsys.readouterr().err
