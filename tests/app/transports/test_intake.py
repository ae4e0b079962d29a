"""What was read of a socket is parsed piece by piece: when it was obeyed, and as fast as its client may be."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from app.limits.fair_scheduler import FairScheduler, LoopTimeBudget
from app.limits.rate_limiter import PATIENCE_S, RateLimiter
from app.transports import intake
from app.transports.intake import PIECE_BYTES, Intake
from tests.app.rig import eventually


class Parser:
    """Each byte is a message. ``ready`` may be taken away, as while a session obeys."""

    def __init__(self, pace: RateLimiter | None = None, now: Callable[[], float] = lambda: 0.0) -> None:
        self.pieces: list[bytes] = []
        self.is_ready, self.resumed, self.lost = True, 0, 0
        self.intake = Intake(
            self._parse,
            lambda: self.is_ready,
            self._resume,
            self._leave,
            pace or RateLimiter(1e9, 1e9),
            LoopTimeBudget(FairScheduler(now)),
        )

    def _parse(self, data: bytes) -> int:
        self.pieces.append(data)
        return len(data)

    def _resume(self) -> None:
        self.resumed += 1

    def _leave(self) -> None:
        self.lost += 1


async def test_pieces_come_in_order_and_whole() -> None:
    parser, data = Parser(), bytes(range(256)) * 40
    parser.intake.put(data)
    assert b"".join(parser.pieces) == data
    assert max(map(len, parser.pieces)) <= PIECE_BYTES
    assert parser.resumed
    assert not parser.intake.behind


async def test_nothing_is_parsed_before_the_last_piece_is_obeyed() -> None:
    parser = Parser()
    parser.is_ready = False
    parser.intake.put(b"ab")
    parser.intake.put(b"cd")
    assert (parser.pieces, parser.resumed, parser.intake.behind) == ([], 0, True)
    parser.is_ready = True
    parser.intake.go_on()
    assert (parser.pieces, parser.resumed, parser.intake.behind) == ([b"abcd"], 1, False)


async def test_a_client_that_sends_more_than_it_may_is_slowed() -> None:
    """A burst of 100 bytes: the first piece is more than that, and is to be paid for before the next one."""
    now_s = 0.0
    parser = Parser(RateLimiter(1e9, 10_000.0 / intake.PIECE_BYTES), lambda: now_s)
    parser.intake.put(bytes(3 * PIECE_BYTES))
    assert len(parser.pieces) == 1
    parser.intake.go_on()
    assert len(parser.pieces) == 1
    parser.intake.close()


async def test_a_slowed_client_is_taken_up_again() -> None:
    parser = Parser(RateLimiter(1e9, 2e6 / 10), asyncio.get_running_loop().time)
    parser.intake.put(bytes(2_100_000))
    assert parser.intake.behind
    await eventually(lambda: not parser.intake.behind)
    assert sum(map(len, parser.pieces)) == 2_100_000


async def test_one_who_goes_on_is_left_once() -> None:
    """A burst of 100 messages, then 10 a second: what came first is paid for after 92 s."""
    now_s = 0.0
    parser = Parser(RateLimiter(10.0, 1e9), lambda: now_s)
    parser.intake.put(bytes(PIECE_BYTES))
    assert parser.lost == 0
    now_s = PATIENCE_S + 40
    for _ in range(2):
        parser.intake.put(bytes(PIECE_BYTES))
        assert (parser.lost, len(parser.pieces)) == (1, 2)


async def test_nothing_is_parsed_once_it_is_closed() -> None:
    parser = Parser()
    parser.is_ready = False
    parser.intake.put(b"ab")
    parser.intake.close()
    parser.is_ready = True
    parser.intake.go_on()
    parser.intake.put(b"cd")
    assert (parser.pieces, parser.resumed) == ([], 0)
