"""A client's budget: what is honest goes through at once, what goes on is slowed, and in the end left."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.limits.rate_limiter import BURST_S, PATIENCE_S, RateLimiter, TokenBucket
from app.settings import Limits

LIMITS = Limits()


@pytest.fixture
def pace() -> RateLimiter:
    return RateLimiter(LIMITS.messages_s, LIMITS.received_mb_s * 1e6)


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0.1, 30)), min_size=1, max_size=50))
def test_no_more_is_taken_than_the_burst_and_the_rate(steps: list[tuple[float, float]]) -> None:
    """Whoever waits as long as they are told never gets more than that, and one amount, in any time."""
    bucket, now_s, taken = TokenBucket(10, 20), 0.0, 0.0
    for rest_s, amount in steps:
        now_s += rest_s
        now_s += bucket.wait_s(now_s)
        assert bucket.wait_s(now_s) <= 1e-6
        assert taken <= 20 + 10 * now_s + 1e-3
        bucket.take(amount, now_s)
        taken += amount


def test_what_is_free_comes_back_with_time() -> None:
    bucket = TokenBucket(10, 20)
    assert bucket.free(0) == 20
    bucket.take(25, 0)
    assert (bucket.free(0), bucket.wait_s(0)) == (-5, 0.5)
    assert (bucket.free(1.5), bucket.wait_s(1.5)) == (10, 0)
    assert bucket.free(100) == 20


def test_a_minute_of_sound_and_a_history_go_through_at_once(pace: RateLimiter) -> None:
    for _ in range(3000):  # 20 ms each, 24 kHz in base64
        pace.spend(1, 1340, 0.0)
    for _ in range(50):
        pace.spend(1, 400, 0.0)
    assert pace.wait_s(0.0) == 0


def test_a_recording_of_five_minutes_and_pictures_go_through_at_once(pace: RateLimiter) -> None:
    pace.spend(1, 20_000_000, 0.0)
    for _ in range(30):
        pace.spend(1, 600_000, 0.0)
    assert pace.wait_s(0.0) == 0


def test_a_microphone_in_the_smallest_pieces_never_waits(pace: RateLimiter) -> None:
    """128 samples at 24 kHz: what an AudioWorklet is given, sent as it comes, for an hour."""
    for n in range(188 * 3600):
        now_s = n / 187.5
        assert pace.wait_s(now_s) == 0
        pace.spend(1, 430, now_s)


def test_empty_messages_are_counted(pace: RateLimiter) -> None:
    pace.spend(int(LIMITS.messages_s * BURST_S) + 400, 0, 0.0)
    assert pace.wait_s(0.0) == 1.0


def test_a_client_is_ahead_of_its_pace_by_what_it_sent_too_early(pace: RateLimiter) -> None:
    assert pace.ahead_s(0.0) == 0
    pace.spend(int(LIMITS.messages_s * 3), 0, 0.0)
    assert pace.ahead_s(0.0) == 3.0
    assert (pace.ahead_s(2.0), pace.ahead_s(10.0)) == (1.0, 0.0)


def test_many_bytes_are_slowed(pace: RateLimiter) -> None:
    pace.spend(1, int(LIMITS.received_mb_s * 1e6 * (BURST_S + 2)), 0.0)
    assert pace.wait_s(0.0) == 2.0
    assert not pace.goes_on(1000.0)


def test_only_one_who_goes_on_is_left(pace: RateLimiter) -> None:
    pace.spend(8000, 0, 0.0)
    for second in range(int(PATIENCE_S) + 1):
        assert not pace.goes_on(second)
        pace.spend(400, 0, second)
    assert pace.goes_on(PATIENCE_S + 1)


def test_one_who_rests_is_forgiven(pace: RateLimiter) -> None:
    pace.spend(8000, 0, 0.0)
    pace.spend(1, 0, PATIENCE_S - 1)
    pace.spend(8000, 0, PATIENCE_S)
    assert not pace.goes_on(PATIENCE_S + 1)


def test_a_client_that_makes_the_server_send_too_much_is_read_more_slowly(pace: RateLimiter) -> None:
    """Sixty bytes that are answered with a quarter of a megabyte."""
    now_s, asked, sent = 0.0, 0, 0
    while now_s < 60:
        pace.spend(1, 60, now_s)
        pace.sent.take(250_000, now_s)
        asked += 1
        sent += 250_000
        now_s += max(0.001, pace.wait_s(now_s))
    assert sent < LIMITS.received_mb_s * 1e6 * (BURST_S + 61)
    assert not pace.goes_on(now_s), "it is slowed, and not cut off"


def test_what_honest_clients_are_sent_slows_nobody(pace: RateLimiter) -> None:
    """Two five-minute items at once, and then speech both ways with settings changed each turn, for an hour."""
    for _ in range(2):
        pace.sent.take(20_000_000, 0.0)
        assert pace.wait_s(0.0) == 0
    for second in range(1, 3600):
        pace.spend(50, 50 * 1340, second)
        pace.sent.take(64_000 + 50_000, second)
        assert pace.wait_s(second) == 0
