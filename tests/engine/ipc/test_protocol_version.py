"""The version of the wire changes with what may cross, and with nothing else."""

from __future__ import annotations

import inspect
import re
from typing import Literal

import pytest

from engine import chunk, core
from engine.deployment import config
from engine.ipc import messages, protocol_version


def test_it_is_the_same_every_time_and_short() -> None:
    assert protocol_version._digest() == protocol_version.VERSION
    assert re.fullmatch(r"[0-9a-f]{8}", protocol_version.VERSION)


@pytest.mark.parametrize("kind", [messages.Hello, chunk.Text, core.StageInfo, config.WorkerSpec])
def test_a_field_more_anywhere_is_another_version(kind: type, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(inspect.get_annotations(kind), "more", "int")  # a copy: nothing is changed yet
    assert protocol_version._digest() == protocol_version.VERSION
    monkeypatch.setattr(kind, "__annotations__", inspect.get_annotations(kind) | {"more": "int"})
    assert protocol_version._digest() != protocol_version.VERSION


def test_a_word_more_of_a_literal_is_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(messages, "PlayoutState", Literal["held", "due", "playing", "over"])
    assert protocol_version._digest() != protocol_version.VERSION


def test_another_meaning_is_another_version(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_version, "MEANING", protocol_version.MEANING + 1)
    assert protocol_version._digest() != protocol_version.VERSION
