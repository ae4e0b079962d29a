"""The bench of speech over an answer: what is held out is held out."""

from __future__ import annotations

import re

from benchmarks.overlaps import CHOSEN_BY, HELD_OUT
from engine.training.nano.crowd import SPEAKERS
from engine.training.nano.ears import ASIDES


def test_what_is_held_out_chose_and_taught_nothing() -> None:
    """But for "mm-hm", which everybody thinks of first."""
    seen = {*CHOSEN_BY.listens, *CHOSEN_BY.interrupts, *re.findall(r"[^()|]+", "".join(ASIDES.values()))}
    listens, interrupts = set(HELD_OUT.listens), set(HELD_OUT.interrupts)
    assert (len(listens), len(interrupts)) == (25, 25)
    assert (listens | interrupts) & seen == {"mm-hm"}
    assert not set(HELD_OUT.voices) & {*CHOSEN_BY.voices, *SPEAKERS}
