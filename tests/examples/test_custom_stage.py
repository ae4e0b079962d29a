"""The stage of one's own, in a deployment that `parley ask` starts."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.examples.programs import EXAMPLES, ran, sound_s


@pytest.mark.parametrize(("day", "answer"), [("Saturday", "open from ten to two"), ("Sunday", "closed")])
def test_the_shop_says_its_hours(day: str, answer: str, tmp_path: Path) -> None:
    shop = str(EXAMPLES / "custom_stage" / "shop.yaml")
    asking = [
        sys.executable,
        "-m",
        "app",
        "ask",
        "-c",
        shop,
        "--text",
        f"When do you open on {day}?",
        "-o",
        "hours.wav",
    ]
    assert answer in ran(asking, tmp_path)
    assert sound_s(tmp_path / "hours.wav") > 0.5
