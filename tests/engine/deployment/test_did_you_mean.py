"""Hints for names that there are not."""

from __future__ import annotations

import pytest

from engine.deployment.did_you_mean import nearest


@pytest.mark.parametrize(
    ("name", "known", "hint"),
    [
        ("kokro", ["kokoro", "kitten"], "did you mean 'kokoro'?"),
        ("xyz", ["kokoro", "kitten"], "known: kokoro, kitten"),
        ("xyz", [f"{n:02}" for n in range(40)], "known: 00, 01, 02, 03, 04, 05, 06, 07, 08, 09, 10, 11"),
        ("xyz", [], "there are none"),
    ],
)
def test_the_name_that_was_meant_or_those_that_there_are(name: str, known: list[str], hint: str) -> None:
    assert nearest(name, known) == hint


def test_where_no_name_is_near_the_caller_may_say_something_else() -> None:
    assert nearest("xyz", ["kokoro"], "`parley models` lists them") == "`parley models` lists them"
    assert nearest("kokro", ["kokoro"], "`parley models` lists them") == "did you mean 'kokoro'?"
