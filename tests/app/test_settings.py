"""What app/SETTINGS.md says of the ``server:`` section; tests/test_reference.py holds its tables to the code."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings import Limits, settings_of
from engine import ConfigError

PAGE = (Path(__file__).parents[2] / "app" / "SETTINGS.md").read_text(encoding="utf-8")


def test_the_example_is_a_section_that_is_taken() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    settings = settings_of(yaml.safe_load(example)["server"])
    assert (settings.host, settings.limits.sessions) == ("0.0.0.0", 100)


def test_every_limit_is_above_0_as_the_page_says() -> None:
    for one in fields(Limits):
        with pytest.raises(ConfigError, match=f"server.limits.{one.name}: must be (a positive|greater than 0)"):
            settings_of({"limits": {one.name: 0}})


def test_no_number_of_seconds_or_megabytes_is_without_end() -> None:
    """What is computed from them would not end, or not be a number."""
    numbers = {one.name for one in fields(Limits) if one.type in (float, "float")}
    assert {"session_s", "held_mb", "kept_mb"} <= numbers
    for value in (math.inf, math.nan):
        for name in numbers:
            problem = rf"server\.limits\.{name}: must be (a positive, finite|greater than 0)"
            with pytest.raises(ConfigError, match=problem):
                settings_of({"limits": {name: value}})
        for name in ("camera_every_s", "drain_s"):
            with pytest.raises(ConfigError, match=rf"server\.{name}: must"):
                settings_of({name: value})


@pytest.mark.parametrize("value", [0, -0.1, 1.1, math.nan])
def test_a_fraction_is_one(value: float) -> None:
    with pytest.raises(ConfigError, match=r"server\.summarize_at: must be greater than 0 and at most 1"):
        settings_of({"summarize_at": value})


@pytest.mark.parametrize(
    ("entry", "where"),
    [
        ({"url": "docs.example/mcp"}, "server.mcp\\[0\\].url"),
        ({"url": "https://me:key@docs.example/mcp"}, "server.mcp\\[0\\].url"),
        ({"url": "https://docs.example/mcp#x"}, "server.mcp\\[0\\].url"),
        ({"url": "https://docs.example/mcp", "timeout_s": 0}, "server.mcp\\[0\\].timeout_s"),
        ({"url": "https://docs.example/mcp", "privat": True}, "did you mean 'private'"),
        ({}, "server.mcp\\[0\\].url: missing"),
    ],
)
def test_mcp_servers_that_are_none(entry: dict[str, Any], where: str) -> None:
    with pytest.raises(ConfigError, match=where):
        settings_of({"mcp": [entry]})


def test_mcp_servers_need_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.settings.find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r".+ pip install .+\[mcp\]"):
        settings_of({"mcp": [{"url": "https://docs.example/mcp"}]})
