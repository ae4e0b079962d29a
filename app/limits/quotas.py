"""Quotas: the part of the server's sessions, calls, requests and memory that one key and one address may use.

With one key or none, only addresses have quotas. A request counts from before its body is read until the session or
answer that it opened is over.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, Literal

from app.client_address import is_local, subscriber
from app.limits.principal import Principal
from app.refusal import Closed
from app.settings import Limits

Kind = Literal["sessions", "calls", "offers", "waiting", "answers", "secrets", "bytes"]
"""``bytes`` are held for a client: its conversations, request bodies and decoded media."""


class QuotaExceeded(Closed):
    """The key or the address has used up its quota."""

    def __init__(self, message: str) -> None:
        super().__init__("share_full", message, 429)


class Quotas:
    """The places in use, by kind. ``several`` returns whether there is more than one key."""

    def __init__(self, limits: Limits | None = None, several: Callable[[], bool] = lambda: False) -> None:
        self._limits = limits or Limits()
        self._several = several
        self._keys = Counter[tuple[Kind, str]]()
        self._addresses = Counter[tuple[Kind, str]]()
        self._holders = Counter[Principal]()
        self._refused = Counter[tuple[Kind, str]]()

    @contextmanager
    def hold(self, kind: Kind, caller: Principal) -> Generator[None]:
        """Hold a place while the block lasts. Raises QuotaExceeded."""
        self.take(kind, caller)
        self._holders[caller] += 1
        try:
            yield
        finally:
            _count(self._holders, caller, -1)
            self.give(kind, caller)

    def take(self, kind: Kind, caller: Principal) -> None:
        """Take a place until ``give`` returns it. Raises QuotaExceeded."""
        self.check(kind, caller)
        self.count(kind, caller, 1)

    def give(self, kind: Kind, caller: Principal) -> None:
        """Return a place that ``take`` took."""
        self.count(kind, caller, -1)

    def count(self, kind: Kind, caller: Principal, change: int) -> None:
        """Change the count of places in use without checking the quota."""
        _count(self._keys, (kind, caller.owner), change)
        _count(self._addresses, (kind, subscriber(caller.address)), change)

    def held(self) -> Iterator[tuple[Kind, str, int]]:
        """Yield each key's places in use: kind, key name, count."""
        for (kind, owner), count in self._keys.items():
            yield kind, owner, count

    def refused(self) -> Iterator[tuple[Kind, str, int]]:
        """Yield each key's refusals: kind, key name, count."""
        for (kind, owner), count in self._refused.items():
            yield kind, owner, count

    def withdraw(self, ends: Callable[[Principal], bool]) -> None:
        """Set ``withdrawn`` of each caller that holds a place and for which ``ends`` is true."""
        for caller in [one for one in self._holders if ends(one)]:
            caller.withdrawn.set()

    def check(self, kind: Kind, caller: Principal, amount: int = 1) -> None:
        """Raise QuotaExceeded if ``amount`` more places would exceed a quota."""
        of_key, of_address = self._most(kind, self._limits.key_share), self._most(kind, self._limits.address_share)
        if self._several() and self._keys[kind, caller.owner] + amount > of_key:
            self._refuse(kind, caller, f"The key {caller.owner!r}", of_key)
        # This machine's own address has no quota. A local proxy that ``trusted_proxies`` omits counts as that address.
        held = self._addresses[kind, subscriber(caller.address)]
        if not is_local(caller.address) and held + amount > of_address:
            self._refuse(kind, caller, f"The address {caller.address}", of_address)

    def _refuse(self, kind: Kind, caller: Principal, who: str, most: int) -> None:
        self._refused[kind, caller.owner] += 1
        what = f"{most / 1e6:g} MB" if kind == "bytes" else f"{most} {_NAMES[kind]}"
        raise QuotaExceeded(f"{who} has used up its quota, {what}: end one, or try again later.")

    def _most(self, kind: Kind, share: float) -> int:
        most = self._limits.held_mb * 1e6 if kind == "bytes" else getattr(self._limits, kind)
        return max(1, int(most * share))


def _count(counts: Counter[Any], key: Any, change: int) -> None:
    """Change a count, and delete it at zero so that the table does not grow with each new address."""
    counts[key] += change
    if not counts[key]:
        del counts[key]


_NAMES: dict[Kind, str] = {
    "sessions": "sessions",
    "calls": "calls",
    "offers": "calls that are being connected",
    "waiting": "places in the admission queue",
    "answers": "HTTP answers in progress",
    "secrets": "client secrets",
}
