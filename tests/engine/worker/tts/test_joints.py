"""Joints of clauses: no pause within a phrase, the voice's own pause at a mark, and no click."""

from __future__ import annotations

import numpy as np
import pytest

from engine.worker.tts.joints import KEPT_S, Piece, ends_within_phrase, joined

RATE_HZ = 22_050
LEAD, TAIL = 0.08, 0.12


def tone(seconds: float = 0.5) -> np.ndarray:
    return (0.5 * np.sin(np.arange(round(seconds * RATE_HZ)) / 20)).astype(np.float32)


def silence(seconds: float) -> np.ndarray:
    return np.full(round(seconds * RATE_HZ), 0.001, np.float32)


def said(*waves: np.ndarray, begins: bool = False, ends: bool = False) -> list[Piece]:
    pieces = [(wave, (i + 1) / len(waves)) for i, wave in enumerate(waves)]
    return list(joined(pieces, RATE_HZ, begins, ends))


def pauses_s(pieces: list[Piece]) -> tuple[float, float]:
    """The silence before and behind a clause's sound."""
    wave = np.concatenate([wave for wave, _ in pieces])
    loud = np.flatnonzero(np.abs(wave) > 0.01)
    return loud[0] / RATE_HZ, (len(wave) - 1 - loud[-1]) / RATE_HZ


@pytest.mark.parametrize("begins", [False, True])
@pytest.mark.parametrize("ends", [False, True])
def test_silence_goes_where_a_phrase_goes_on(begins: bool, ends: bool) -> None:
    whole = np.concatenate([silence(LEAD), tone(), silence(TAIL)])
    before, after = pauses_s(said(whole, begins=begins, ends=ends))
    assert before == pytest.approx(KEPT_S if begins else LEAD, abs=0.003)
    assert after == pytest.approx(KEPT_S if ends else TAIL, abs=0.003)


def test_pieces_of_silence_alone_go_too_and_shares_stay() -> None:
    pieces = said(silence(0.1), tone(), silence(0.2), tone(), silence(0.1), begins=True, ends=True)
    assert [share for _, share in pieces] == [0.2, 0.4, 0.6, 0.8, 1.0]
    lengths = [len(wave) / RATE_HZ for wave, _ in pieces]
    assert lengths == pytest.approx([0, 0.5, 0.2, 0.5, 0], abs=0.001), "a pause in the middle is the voice's own"


def test_a_cut_makes_no_click() -> None:
    rumble = 0.003 * np.sign(np.sin(np.arange(RATE_HZ // 10))).astype(np.float32)
    pieces = said(np.concatenate([rumble, tone(), rumble]), begins=True, ends=True)
    wave = np.concatenate([wave for wave, _ in pieces])
    assert wave[0] == wave[-1] == 0


def test_silence_alone_stays() -> None:
    assert len(said(silence(0.3), begins=True, ends=True)[0][0]) == len(silence(0.3))
    assert said() == []


@pytest.mark.parametrize(
    ("text", "within"),
    [("two large ", True), ("two large, ", False), ("two. ", False), ('"two" ', False), ("", False), ("7", True)],
)
def test_a_phrase_goes_on_behind_a_clause_without_a_mark(text: str, within: bool) -> None:
    assert ends_within_phrase(text) is within
