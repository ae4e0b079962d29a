"""The bench's fixtures: for each module one server that it measures."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from app.bench import subject


@pytest.fixture(scope="module")
def scripted() -> Generator[subject.Subject]:
    """The scripted family in processes of its own, with short words: answers are played as long as they sound."""
    with subject.running("script", changes={"options.frames_per_word": 2}) as one:
        yield one
