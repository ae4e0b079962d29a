"""An engine on two local nodes of a Ray cluster answers like one in a single place, and outlives a node."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[4]
pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def story() -> dict[str, Any]:
    """What happened: see ray_scenario.py."""
    command = [sys.executable, "-m", "tests.engine.control.launchers.ray_scenario", "configs/ray_two_nodes.yaml"]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, timeout=500, check=True)
    return json.loads(next(line for line in reversed(done.stdout.splitlines()) if line.startswith(b"{")))


def test_the_stages_are_where_the_configuration_puts_them(story: dict[str, Any]) -> None:
    assert story["shape"] == {"ears": 1, "thinker": 1, "talker": 2, "code2wav": 2}


@pytest.mark.seed("A3.4")
def test_the_answer_is_that_of_a_single_machine_to_the_sample(story: dict[str, Any]) -> None:
    for what in ("text", "samples", "sound"):
        assert story["cluster"][what] == story["single"][what]
    assert story["single"]["samples"] == 40 * 2 * 960


def test_the_first_sound_is_hardly_later(story: dict[str, Any]) -> None:
    added_ms = story["cluster_ttfa_ms"] - story["single_ttfa_ms"]
    print(f"added to the time to first audio: {added_ms:.2f} ms")
    assert added_ms <= 10


@pytest.mark.seed("A1.14")
def test_answers_go_on_when_a_node_is_gone(story: dict[str, Any]) -> None:
    assert story["missed_s"] < 5, "Ray takes a moment to end what ran there; its end is noticed at once"
    assert story["ends"] == ["whole"] * 4
    assert story["samples"] == [400 * 2 * 960]
    assert story["after"] == "still here"


def test_a_node_that_comes_is_used(story: dict[str, Any]) -> None:
    assert story["back_s"] < 60
