"""Thousands of mutated SIP messages: none raises, holds the loop or keeps memory."""

from __future__ import annotations

import pytest

from tests.app.transports.telephone.sip_fuzz import SipFuzzer, fuzzed

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("seed", [1, 2])
async def test_mutated_messages_are_answered_or_dropped(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    found = await fuzzed(5_000, seed, monkeypatch.setattr)
    print(found)
    assert found.exceptions == 0
    assert found.longest_ms <= 100
    assert found.grown_mb <= 100
    assert found.answers > 1_000, "many of them are messages still"


def test_a_seed_makes_the_same_messages() -> None:
    one, other = SipFuzzer(7), SipFuzzer(7)
    assert [one.message() for _ in range(100)] == [other.message() for _ in range(100)]
