"""Wrong keys: some at once, then one now and then, whoever else tries."""

from __future__ import annotations

import pytest

from app.limits.auth_throttle import AT_ONCE, EVERY_S, AuthThrottle


class Clock:
    s = 1000.0

    def __call__(self) -> float:
        return self.s


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def throttle(clock: Clock) -> AuthThrottle:
    return AuthThrottle(clock)


def test_some_may_be_wrong_at_once_and_then_one_at_a_time(throttle: AuthThrottle, clock: Clock) -> None:
    for _ in range(AT_ONCE):
        assert throttle.wait_s("10.0.0.1") == 0
        throttle.failed("10.0.0.1")
    assert throttle.wait_s("10.0.0.1") == pytest.approx(EVERY_S)
    clock.s += EVERY_S
    assert throttle.wait_s("10.0.0.1") == 0
    throttle.failed("10.0.0.1")
    assert throttle.wait_s("10.0.0.1") == pytest.approx(EVERY_S)


@pytest.mark.parametrize("now_s", [0.1, 437.3, 1234.567, 98765.4321])
def test_as_many_may_be_wrong_whatever_the_clock_shows(throttle: AuthThrottle, clock: Clock, now_s: float) -> None:
    """Sums of fractions are not exact: at some times the last of them was refused."""
    for i in range(1000):
        clock.s, address = now_s + i / 7, f"10.0.{i // 250}.{i % 250}"
        for _ in range(AT_ONCE):
            assert throttle.wait_s(address) == 0
            throttle.failed(address)
        assert throttle.wait_s(address) > 0


def test_failures_are_forgotten_with_time(throttle: AuthThrottle, clock: Clock) -> None:
    for _ in range(AT_ONCE):
        throttle.failed("10.0.0.1")
    clock.s += AT_ONCE * EVERY_S
    for _ in range(AT_ONCE):
        assert throttle.wait_s("10.0.0.1") == 0
        throttle.failed("10.0.0.1")


def test_another_address_may_go_on(throttle: AuthThrottle) -> None:
    for _ in range(AT_ONCE):
        throttle.failed("10.0.0.1")
    assert throttle.wait_s("10.0.0.2") == 0


def test_an_ipv6_network_is_one_address(throttle: AuthThrottle) -> None:
    for n in range(AT_ONCE):
        throttle.failed(f"2001:db8:1:2::{n:x}")
    assert throttle.wait_s("2001:db8:1:2:ffff::1") > 0
    assert throttle.wait_s("2001:db8:1:3::1") == 0


def test_an_ipv4_client_of_a_socket_on_ipv6_is_one_address() -> None:
    """F11: all of them were one network, and twenty wrong keys of one of them locked all out."""
    throttle = AuthThrottle()
    for _ in range(AT_ONCE):
        throttle.failed("::ffff:10.0.0.1")
    assert throttle.wait_s("10.0.0.1") > 0
    assert throttle.wait_s("::ffff:10.0.0.1") > 0
    assert throttle.wait_s("::ffff:10.0.0.2") == 0


@pytest.mark.fault("S2.4")
def test_the_table_is_bounded_and_keeps_who_failed_last(clock: Clock) -> None:
    throttle = AuthThrottle(clock, addresses=2)
    for address in ("a", "b", "a", "c"):
        for _ in range(AT_ONCE):
            throttle.failed(address)
    assert [throttle.wait_s(one) > 0 for one in ("a", "b", "c")] == [True, False, True]
