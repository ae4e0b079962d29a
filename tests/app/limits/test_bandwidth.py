"""What all clients of a key, or of an address, may send together: honest use goes through, a flood is slowed."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.limits.bandwidth import MOST, BandwidthLimits
from app.limits.principal import Principal
from app.limits.rate_limiter import BURST_S, RateLimiter
from app.settings import Limits
from tests.app.rig import keys_file, running, script_spec, silence, talking

LIMITS = Limits()
ALICE, BOB = Principal("alice", address="203.0.113.7"), Principal("bob", address="203.0.113.8")


def paces(budgets: BandwidthLimits, caller: Principal, count: int) -> list[RateLimiter]:
    """Those of so many connections of a caller's, each of which alone may send as much as it likes."""
    some = [RateLimiter(1e9, 1e12) for _ in range(count)]
    for pace in some:
        budgets.charge(pace, caller)
    return some


@pytest.fixture
def budgets() -> BandwidthLimits:
    return BandwidthLimits(LIMITS, lambda: 0.0)


def test_a_backend_with_sixty_users_is_not_slowed(budgets: BandwidthLimits) -> None:
    """A minute of each one's sound that waited, all at once, and then an hour of speech."""
    backend = Principal("backend", address="127.0.0.1")
    many = paces(budgets, backend, 60)
    for pace in many:
        pace.spend(3000, 3000 * 1340, 0.0)
        assert pace.wait_s(0.0) == 0
    for second in range(31, 3600, 30):
        for pace in many:
            pace.spend(50, 50 * 1340 * 30, second)
            assert pace.wait_s(second) == 0


def test_a_recording_of_five_minutes_and_thirty_pictures_are_not_slowed(budgets: BandwidthLimits) -> None:
    for pace in paces(budgets, ALICE, 4):
        pace.spend(1, 20_000_000, 0.0)
        pace.spend(30, 30 * 600_000, 0.0)
        assert pace.wait_s(0.0) == 0


def test_connections_of_a_key_send_no_more_than_one_budget_together(budgets: BandwidthLimits) -> None:
    many = [pace for n in range(20) for pace in paces(budgets, Principal("alice", address=f"203.0.113.{n}"), 5)]
    taken, piece, now_s = 0, 1_000_000, 0.0
    for _ in range(3000):
        now_s += 0.01
        for pace in many:
            if pace.wait_s(now_s) == 0:
                pace.spend(1, piece, now_s)
                taken += piece
    most = LIMITS.key_received_mb_s * 1e6 * (BURST_S + now_s) + len(many) * piece
    assert 0.9 * most < taken <= most
    (bob,) = paces(budgets, BOB, 1)
    bob.spend(1, 1_000_000, now_s)
    assert bob.wait_s(now_s) == 0, "another key has its own"


def test_connections_of_an_address_send_no_more_than_one_budget_together(budgets: BandwidthLimits) -> None:
    size = int(LIMITS.address_received_mb_s * 1e6 * BURST_S)
    first, second = paces(budgets, ALICE, 1) + paces(budgets, Principal("bob", address=ALICE.address), 1)
    first.spend(1, size, 0.0)
    second.spend(1, int(LIMITS.address_received_mb_s * 1e6), 0.0)
    assert second.wait_s(0.0) == pytest.approx(1.0)
    own = paces(budgets, Principal("carol", address="127.0.0.1"), 1)[0]
    own.spend(1, size + 1_000_000, 0.0)
    assert own.wait_s(0.0) == 0


def test_whoever_shares_is_served_in_turn(budgets: BandwidthLimits) -> None:
    """One who floods does not keep another of the same key from its turn, and from talking not at all."""
    flooding, uploading, speaking = paces(budgets, ALICE, 3)
    flooding.spend(1, int(LIMITS.address_received_mb_s * 1e6 * (BURST_S + 1)), 0.0)
    assert flooding.wait_s(0.0) == pytest.approx(1.0)
    assert uploading.wait_s(0.0) == 0
    uploading.spend(1, 450_000, 0.0)
    assert uploading.wait_s(0.0) == pytest.approx(1.0, abs=0.05)
    for frame in range(1, 500):
        speaking.spend(1, 1340, frame / 50)
        assert speaking.wait_s(frame / 50) == 0


def test_one_who_connects_anew_does_not_begin_anew(budgets: BandwidthLimits) -> None:
    paces(budgets, ALICE, 1)[0].spend(1, int(LIMITS.address_received_mb_s * 1e6 * (BURST_S + 2)), 0.0)
    (anew,) = paces(budgets, ALICE, 1)
    anew.spend(1, 450_000, 0.0)
    assert anew.wait_s(0.0) == pytest.approx(2.0, abs=0.05)


def test_addresses_are_forgotten_some_time(budgets: BandwidthLimits) -> None:
    for n in range(MOST + 10):
        budgets.charge(RateLimiter(1, 1), Principal(address=f"10.0.{n >> 8}.{n & 255}"))
    assert len(budgets._addresses) == MOST


async def test_clients_of_one_key_are_slowed_together_and_it_is_told(tmp_path: Path) -> None:
    """Half a megabyte at once, and then 50 kB a second, for all of alice's connections; bob's are not slowed."""
    keys = {name: name * 4 + "0123456789abcdef" for name in ("alice", "bob")}
    file = keys_file(tmp_path, *(f"{name}: {key}" for name, key in keys.items()))
    headers = {name: {"Authorization": f"Bearer {key}"} for name, key in keys.items()}
    loop = asyncio.get_running_loop()

    async def say(client: Any) -> None:
        await client.append(silence(4.0))  # 256 kB of base64
        await client.send("input_audio_buffer.clear")
        await client.until("input_audio_buffer.cleared")

    async with running(script_spec(keys_file=file, limits={"key_received_mb_s": 0.05})) as server:
        async with (
            talking(server, additional_headers=headers["alice"]) as one,
            talking(server, additional_headers=headers["alice"]) as two,
            talking(server, additional_headers=headers["bob"]) as other,
        ):
            begun_s = loop.time()
            await say(one)
            await say(two)
            await two.send("input_audio_buffer.clear", event_id="x" * 30_000)
            await two.until("input_audio_buffer.cleared")
            assert loop.time() - begun_s > 0.5
            await say(other)
        async with httpx.AsyncClient(base_url=server.http, headers=headers["alice"]) as http:
            body = {"model": "script", "messages": [{"role": "user", "content": "say: hi"}], "user": "x" * 50_000}
            slowed, sent = server.metric("parley_received_slowed_total", key="alice"), 0
            while server.metric("parley_received_slowed_total", key="alice") == slowed:  # it fills while nobody sends
                assert (await http.post("/v1/chat/completions", json=body)).status_code == 200
                sent += 1
                assert sent < 15, "what comes over HTTP is the same budget's, and no budget holds so much"
        assert server.metric("parley_received_bytes_total", key="alice") > 540_000
        assert server.metric("parley_received_slowed_total", key="alice") > 0
        assert 250_000 < server.metric("parley_received_bytes_total", key="bob") < 400_000
        assert server.metric("parley_received_slowed_total", key="bob") == 0


def test_connections_of_a_key_are_sent_no_more_than_one_budget_together(budgets: BandwidthLimits) -> None:
    many = paces(budgets, ALICE, 20)
    most = int(LIMITS.address_received_mb_s * 1e6 * BURST_S)
    for pace in many:
        pace.sent.take(most // 10, 0.0)
    assert many[-1].wait_s(0.0) > 0
    assert paces(budgets, BOB, 1)[0].wait_s(0.0) == 0
    assert {name: one.sent.bytes for name, one in budgets.usage()} == {"alice": 20 * (most // 10), "bob": 0}
