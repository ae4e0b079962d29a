"""The version of the wire changes with what may cross, and with nothing else."""

from __future__ import annotations

import inspect
import re
from typing import Literal

import pytest

from engine import chunk, config, core, version, wire


def test_it_is_the_same_every_time_and_short() -> None:
    assert version._digest() == version.VERSION
    assert re.fullmatch(r"[0-9a-f]{8}", version.VERSION)


@pytest.mark.parametrize("kind", [wire.Hello, chunk.Text, core.StageInfo, config.WorkerSpec])
def test_a_field_more_anywhere_is_another_version(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(inspect.get_annotations(kind), "more", "int")  # a copy: nothing is changed yet
    assert version._digest() == version.VERSION
    monkeypatch.setattr(kind, "__annotations__", inspect.get_annotations(kind) | {"more": "int"})
    assert version._digest() != version.VERSION


def test_a_word_more_of_a_literal_is_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wire, "PlayoutState", Literal["held", "due", "playing", "over"])
    assert version._digest() != version.VERSION


def test_another_meaning_is_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(version, "MEANING", version.MEANING + 1)
    assert version._digest() != version.VERSION
