"""The first-audio ledger adds up, whatever marks there are."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.control.timeline import StageTime, Timeline
from engine.pipeline import Pipeline
from tests.engine.test_pipeline import WHOLE

TERMS = Pipeline(WHOLE).terms
MARKS = [name for _, name in TERMS]


@given(st.floats(0, 1e3), st.dictionaries(st.sampled_from(MARKS[:-1]), st.floats(0, 2e3)), st.floats(0, 2e3))
def test_the_terms_add_up_and_none_is_negative(commit_s: float, marks: dict[str, float], audio_s: float) -> None:
    timeline = Timeline(commit_s, TERMS)
    for name, at_s in (marks | {"audio": audio_s}).items():
        timeline.mark(name, at_s)
    ledger = timeline.ledger()
    assert ledger is not None
    assert list(ledger.terms) == [term for term, _ in TERMS]
    assert all(ms >= 0 for ms in ledger.terms.values())
    last_s = max(commit_s, audio_s, *marks.values()) if marks else max(commit_s, audio_s)
    assert ledger.ttfa_ms == pytest.approx((last_s - commit_s) * 1000, abs=1e-6)


def test_each_term_is_the_way_to_its_mark() -> None:
    timeline = Timeline(0.5, TERMS)
    for i, name in enumerate(MARKS):
        timeline.mark(name, float(i))
        timeline.mark(name, 99.0)  # only the first counts
    ledger = timeline.ledger()
    assert ledger is not None
    assert list(ledger.terms.values()) == [0.0, 500.0, *[1000.0] * 5]


@pytest.mark.seed("A4.19")
def test_missing_audio_is_missing_and_not_nought() -> None:
    timeline = Timeline(0.0, TERMS)
    timeline.mark("talker.out", 1.0)
    assert timeline.ledger() is None


def test_a_stage_begins_with_its_input_and_ends_with_its_last_output() -> None:
    timeline = Timeline(5.0, TERMS, WHOLE)
    marks = {"open": 1.0, "ears.step": 1.5, "ears.out": 2.0, "ears.done": 6.0, "thinker.step": 5.5, "thinker.out": 7.0}
    for name, at_s in {**marks, "thinker.done": 9.0, "talker.step": 7.5, "talker.out": 8.0}.items():
        timeline.mark(name, at_s)
    ears, thinker, talker = timeline.stage_times()
    assert ears == StageTime("ears", "asr", 1.0, 2.0, 6.0)
    assert thinker == StageTime("thinker", "llm", 5.5, 7.0, 9.0), "prefill begins while the ears still listen"
    assert talker == StageTime("talker", "tts", 7.0, 8.0, None), "interrupted"
