"""scripts/words.py: a word that was given up is found in identifiers, and only there; an exception has a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from scripts import words

TABLE = """
[[word]]
old = ["Tip", "tip"]
new = "DecodeInput"
packages = ["engine"]
"""


def counted(tmp_path: Path, source: str, more: str = "", name: str = "engine/module.py") -> int:
    """What the script says of one module."""
    (tmp_path / "scripts").mkdir(exist_ok=True)
    (tmp_path / "scripts" / "words.toml").write_text(TABLE + more)
    file = tmp_path / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(source)
    return words.main(["--where"], tmp_path)


@pytest.mark.parametrize(
    "source",
    [
        "class Tip: ...",
        "class NextTip: ...",
        "def add(tip): ...",
        "def next_tip(): ...",
        "async def tip(): ...",
        "TIP = 1",
        "one._tip = 1",
        "call(tip=1)",
        "import numpy as tip",
        "from engine.tip import DecodeInput",
        "from engine import tip",
        "def f():\n    global tip",
        "match x:\n    case Point(tip=1): ...",
        "match x:\n    case [*tip]: ...",
        "try: ...\nexcept OSError as tip: ...",
        "lambda tip: 1",
    ],
)
def test_an_old_word_is_found(source: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert counted(tmp_path, source) == 1
    assert "engine/module.py:" in capsys.readouterr().out


@pytest.mark.parametrize(
    "source",
    [
        "class DecodeInput: ...",
        "multiple = tipped = 1",
        "'tip'  # tip",
        "'''Tip of a tip.'''",
        "def f(x): 'tip'",
        "from numpy import tip as found",
        "import tip",
    ],
)
def test_a_new_word_prose_and_others_names_are_not(source: str, tmp_path: Path) -> None:
    assert counted(tmp_path, source) == 0


def test_a_modules_own_name_counts_and_training_does_not(tmp_path: Path) -> None:
    assert counted(tmp_path, "", name="engine/training/tip.py") == 0
    assert counted(tmp_path, "", name="app/tip.py") == 0
    assert counted(tmp_path, "", name="engine/tip.py") == 1


@pytest.mark.parametrize("key", ["tip", "engine/module.py", "engine/", "engine/module.py:tip"])
def test_what_is_listed_with_its_reason_is_shown_and_does_not_fail(
    key: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    reason = f'right = {{ "{key}" = "of the pen" }}'
    assert counted(tmp_path, "tip = 1", reason) == 0
    assert "0 left, 1 listed" in capsys.readouterr().out
    assert counted(tmp_path, "tip = 1\nnext_tip = 2", reason) == int(key.endswith("tip"))


def test_an_exception_that_nothing_needs_fails(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert counted(tmp_path, "x = 1", 'right = { "engine/module.py:tip" = "of the pen" }') == 1
    assert "nothing needs this exception" in capsys.readouterr().out


def test_a_row_that_waits_is_counted_and_does_not_fail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert counted(tmp_path, "tip = 1", 'waits = "with the next step"') == 0
    assert "1 left (with the next step)" in capsys.readouterr().out


def test_a_table_that_names_what_is_not_there_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match="there is no app"):
        counted(tmp_path, "", '[[word]]\nold = ["x"]\nnew = "y"\npackages = ["app"]')
    with pytest.raises(TypeError, match="why"):
        counted(tmp_path, "", 'why = "x"')


def test_a_check_shows_what_fails_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    counted(tmp_path, "tip = 1", '[[word]]\nold = ["nib"]\nnew = "tip"\npackages = ["engine"]')
    capsys.readouterr()
    assert words.main(["--check"], tmp_path) == 1
    assert "nib" not in capsys.readouterr().out
    assert words.main(["--check", "nib"], tmp_path) == 0
