"""How addresses are written, and whose they are."""

from __future__ import annotations

import pytest

from app.addresses import plain, subscriber


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("::FFFF:0a00:0001", "10.0.0.1"),
        ("2001:db8:0::1", "2001:db8::1"),
        ("fe80::1%eth0", "fe80::1%eth0"),
        ("", ""),
        ("unix", "unix"),
    ],
)
def test_an_address_is_written_in_one_way(address: str, expected: str) -> None:
    assert plain(address) == expected


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("10.0.0.1", "::ffff:10.0.0.1", True),
        ("10.0.0.1", "10.0.0.2", False),
        ("2001:db8:1:2::1", "2001:db8:1:2:ffff::9", True),
        ("2001:db8:1:2::1", "2001:db8:1:3::1", False),
        ("fe80::1%eth0", "fe80::2%eth1", True),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.2", False),
    ],
)
def test_a_subscriber_has_one_ipv4_address_or_64_bits_of_ipv6(one: str, other: str, same: bool) -> None:
    assert (subscriber(one) == subscriber(other)) is same
