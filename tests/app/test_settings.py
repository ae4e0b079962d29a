"""app/SETTINGS.md names every key of the ``server:`` section with its default."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import MISSING, Field, fields
from pathlib import Path
from typing import Any

import pytest
import yaml

from app.settings import IceServer, Limits, Settings, TurnSettings, settings_of
from engine import ConfigError

PAGE = (Path(__file__).parents[2] / "app" / "SETTINGS.md").read_text(encoding="utf-8")
ROW = re.compile(r"^\| `(\w+)` \| (?:`(.+?)`|(none)|) ?\| (.+) \|$", re.MULTILINE)


def written(one: Field[Any]) -> str:
    """The default of a field, as the page writes it."""
    if one.default is MISSING:
        return ""
    if one.default in (None, ()):
        return "none"
    return f"{one.default:g}" if isinstance(one.default, float) else yaml.safe_dump(one.default).split()[0]


def expected() -> Iterator[tuple[str, str]]:
    for kind in (Settings, IceServer, TurnSettings, Limits):
        for one in fields(kind):
            yield one.name, written(one)


def test_every_key_is_there_once_with_its_default() -> None:
    rows = [(name, value or none) for name, value, none, _ in ROW.findall(PAGE)]
    assert sorted(rows) == sorted(expected())


def test_the_example_is_a_section_that_is_taken() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    settings = settings_of(yaml.safe_load(example)["server"])
    assert (settings.host, settings.limits.sessions) == ("0.0.0.0", 100)


def test_every_limit_is_above_0_as_the_page_says() -> None:
    for one in fields(Limits):
        with pytest.raises(ConfigError, match=f"server.limits.{one.name}: must be above 0"):
            settings_of({"limits": {one.name: 0}})
