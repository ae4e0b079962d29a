"""Log lines are bounded for each client and for all, and those that were left out are counted."""

from __future__ import annotations

import logging
from collections import Counter

import pytest

from app import telemetry
from app.limits.log_rate_limiter import ALL_AT_ONCE, EACH_AT_ONCE, MOST, LogRateLimiter, subject_of


def test_one_client_gets_some_lines_and_then_one_a_second() -> None:
    lines = LogRateLimiter()
    written = [lines.admit("session.refused", "sess_1", 0.0) for _ in range(1000)]
    assert written.count(0) == EACH_AT_ONCE
    assert written.count(None) == 1000 - EACH_AT_ONCE
    assert lines.admit("session.refused", "sess_1", 1.0) == 1000 - EACH_AT_ONCE
    assert lines.admit("session.refused", "sess_1", 1.5) is None


def test_any_line_about_a_client_tells_what_was_left_out() -> None:
    lines = LogRateLimiter()
    for _ in range(EACH_AT_ONCE + 7):
        lines.admit("session.refused", "sess_1", 0.0)
    assert lines.admit("session.closed", "sess_2", 0.0) == 0
    assert lines.admit("session.closed", "sess_1", 0.0) == 7
    assert lines.admit("session.closed", "sess_1", 0.0) == 0


def test_many_clients_are_bounded_together() -> None:
    lines = LogRateLimiter()
    written = [lines.admit("session.opened", f"sess_{n}", 0.0) for n in range(30_000)]
    assert sum(one is not None for one in written) == 10 * ALL_AT_ONCE
    assert len(lines._each) <= MOST
    assert len(lines._left_out) <= MOST


def test_of_sessions_that_ended_nothing_is_counted_any_more() -> None:
    """Two hundred of them at once, and then one every three seconds for an hour."""
    lines = LogRateLimiter()
    for n in range(200):
        lines.admit("session.opened", f"sess_{n}", 0.0)
    assert len(lines._each) == 200
    for n in range(200, 1400):
        lines.admit("session.opened", f"sess_{n}", 3.0 * n)
    assert len(lines._each) == 1


def test_one_who_wrote_too_many_lines_is_not_forgotten_before_they_may_write_as_many_again() -> None:
    lines = LogRateLimiter()
    for _ in range(EACH_AT_ONCE):
        lines.admit("session.refused", "sess_1", 0.0)
    for n in range(100):
        lines.admit("session.refused", f"other_{n}", 10.0)
    assert [lines.admit("session.refused", "sess_1", 10.0) for _ in range(EACH_AT_ONCE)].count(0) == 10


def test_a_busy_hour_is_written_whole() -> None:
    """64 sessions that are answered every two seconds."""
    lines = LogRateLimiter()
    for second in range(0, 3600, 2):
        for n in range(64):
            for event in ("response.created", "response.done"):
                assert lines.admit(event, f"sess_{n}", float(second)) == 0


def test_whom_a_line_is_about() -> None:
    assert subject_of({"code": 1, "session": "sess_1", "client": "10.0.0.1"}) == "sess_1"
    assert subject_of({"client": "10.0.0.1"}) == "10.0.0.1"
    assert subject_of({"session": "", "call": None}) == ""
    assert subject_of({"key": "anna", "request": "req_1", "client": "10.0.0.1"}) == "10.0.0.1"
    assert subject_of({"key": "-", "request": "-"}) == ""


def test_what_a_key_was_let_do_is_written_whole(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However much that is, and however many strangers are refused meanwhile, who have no key at all."""
    monkeypatch.setattr(telemetry, "_LINES", LogRateLimiter())
    with caplog.at_level(logging.INFO, "parley"):
        for n in range(3 * EACH_AT_ONCE):
            before = telemetry.ASKED.set(telemetry.RequestContext(f"req_{n}", "anna"))
            telemetry.audit("http.answered", answer=f"resp_{n}", status="completed")
            telemetry.audit("client_secret.issued", lifetime_s=600)
            telemetry.ASKED.reset(before)
            telemetry.audit("request.refused", client="10.0.0.1", status=401)
        telemetry.audit("request.refused", client="10.0.0.2", status=401)
    events = Counter(line.split()[0] for line in caplog.messages)
    assert events["http.answered"] == events["client_secret.issued"] == 3 * EACH_AT_ONCE
    assert EACH_AT_ONCE < events["request.refused"] < 2 * EACH_AT_ONCE
    assert "client=10.0.0.2" in caplog.messages[-1]


def test_what_is_written_says_how_many_were_left_out(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(telemetry, "_LINES", LogRateLimiter())
    with caplog.at_level(logging.INFO, "parley"):
        for _ in range(EACH_AT_ONCE + 100):
            telemetry.log("session.refused", session="sess_1", code="x")
        telemetry.log("session.closed", session="sess_1", code=1000)
    assert len(caplog.messages) == EACH_AT_ONCE + 1
    assert caplog.messages[-1] == "session.closed session=sess_1 code=1000 left_out=100"
