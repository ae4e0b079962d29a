"""What the bench of one front end says of its points: where the knee is, and whether those below it are on a line."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from benchmarks.fronts import LATE_S, Point, judge, line


def points(cores: Sequence[float], late_s: Sequence[float], rounds: int = 3) -> list[Point]:
    return [
        Point("sockets", 50 * (n + 1), 10.0, 0.0, late, front, 0.1, 0.0, 0.1, 100 + 0.5 * 50 * (n + 1))
        for _ in range(rounds)
        for n, (front, late) in enumerate(zip(cores, late_s, strict=True))
    ]


def test_the_knee_is_the_first_count_that_most_rounds_miss(capsys: pytest.CaptureFixture[str]) -> None:
    straight = [0.05 + 0.002 * 50 * (n + 1) for n in range(5)]
    calm = [LATE_S / 2] * 4
    assert judge([*points(straight, [*calm, LATE_S / 2])])
    assert "knee: none up to 250" in capsys.readouterr().out
    assert judge(points(straight, [*calm, LATE_S * 2]))
    said = capsys.readouterr().out
    assert "knee: 250" in said
    assert "cores: 0.050 + 0.00200 each, 500 sessions a core" in said
    assert "memory: 100 MB + 0.500 MB each" in said


def test_what_is_not_straight_or_too_little_is_no_line(capsys: pytest.CaptureFixture[str]) -> None:
    bent = [0.1, 0.2, 0.3, 0.9, 0.5]
    assert not judge(points(bent, [LATE_S / 2] * 5))
    assert not judge(points([0.1, 0.2, 0.3], [LATE_S / 2, LATE_S / 2, LATE_S * 2])), "two counts are always on a line"
    assert "too few counts" in capsys.readouterr().out


def test_the_farthest_point_is_told_as_a_part_of_its_value() -> None:
    assert line([1, 2, 3], [2.0, 4.0, 6.0])[2] == pytest.approx(0, abs=1e-9)
    assert line([1, 2, 3], [2.0, 5.0, 6.0])[2] > 0.1
