"""The drawings of QR codes. Their content is segno's."""

from __future__ import annotations

import pytest

from app.http.qr_code import MAX_BYTES, QUIET, qr_code, svg_path, terminal_lines

ADDRESS = "https://192.168.1.20:8443/"


def test_a_code_has_the_three_corners_by_which_cameras_find_it() -> None:
    code = [list(row) for row in qr_code(ADDRESS)]
    size = len(code)
    assert size == 25
    edge, inner = [1] * 7, [1, 0, 1, 1, 1, 0, 1]
    for top, left in ((0, 0), (0, size - 7), (size - 7, 0)):
        assert code[top][left : left + 7] == edge
        assert code[top + 3][left : left + 7] == inner


def test_an_address_that_is_too_long_has_no_code() -> None:
    text = "https://parley.example.org/" + "a" * 107
    assert len(text) == MAX_BYTES
    assert len(qr_code(text)) == 41
    with pytest.raises(ValueError, match="at most 134 bytes"):
        qr_code(text + "a")


def test_both_drawings_have_every_dark_module() -> None:
    code = qr_code(ADDRESS)
    dark = sum(map(sum, code))
    assert svg_path(code).count("M") == dark
    assert svg_path(code).startswith(f"M{QUIET} {QUIET}h1v1h-1z")
    lines = list(terminal_lines(code))
    assert {len(line) for line in lines} == {len(code) + 2 * QUIET}
    halves = {" ": 0, "▀": 1, "▄": 1, "█": 2}
    assert sum(halves[cell] for line in lines for cell in line) == dark
