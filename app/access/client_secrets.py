"""Ephemeral client secrets: short-lived keys that open realtime sessions, each with its session's settings.

A web page gets one from its own backend, so that the server's API key never reaches a browser. Source: the Realtime GA
protocol, ``POST /v1/realtime/client_secrets``.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections.abc import Callable
from typing import Any

import orjson

from app.ids import prefix
from app.limits.memory_budget import MemoryBudget
from app.limits.principal import Principal, Secret
from app.limits.quotas import QuotaExceeded, Quotas
from app.refusal import Closed

KIND = "ek"
PREFIX = prefix(KIND, None)
LIFETIME_S = 600
LIFETIMES_S = (10, 7200)
"""Minimum and maximum lifetime that a client may request, as in the protocol. The default is above."""


class TooManySecrets(Closed):
    """The server, or the quota of the caller, allows no further client secret."""

    def __init__(self, message: str) -> None:
        super().__init__("too_many_client_secrets", message, 429)


class ClientSecrets:
    """The valid secrets: at most ``limit``, each usable any number of times until it expires or is withdrawn.

    ``now`` returns monotonic seconds. ``quotas`` bounds the secrets of one key and of one address, and ``memory``
    their bytes. ``server`` is the server's name, which is part of each secret.
    """

    def __init__(
        self,
        limit: int,
        now: Callable[[], float] = time.monotonic,
        quotas: Quotas | None = None,
        server: str | None = None,
        memory: MemoryBudget | None = None,
    ) -> None:
        self._limit = limit
        self._now = now
        self._shares = quotas or Quotas()
        self._memory = memory or MemoryBudget()
        self._prefix = prefix(KIND, server)
        # Keyed by digest: the time of a look-up reveals something about digests, but nothing about the secrets.
        self._alive: dict[bytes, Secret] = {}

    def __len__(self) -> int:
        return len(self._alive)

    def issue(self, session: dict[str, Any], lifetime_s: float = LIFETIME_S, maker: Principal | None = None) -> Secret:
        """Issue a new secret of 256 random bits. Raises TooManySecrets, MemoryFull and QuotaExceeded."""
        self.forget()
        maker = maker or Principal()
        if len(self._alive) >= self._limit:
            raise TooManySecrets(
                f"All {self._limit} client secrets are in use: withdraw one, or wait until one expires."
            )
        settings = orjson.dumps(session)
        secret = Secret(self._prefix + secrets.token_hex(32), settings, self._now() + lifetime_s, maker)
        self._memory.check(secret.size, maker)
        try:
            self._shares.take("secrets", maker)
        except QuotaExceeded as taken:
            raise TooManySecrets(str(taken)) from None
        self._memory.count(secret.size, maker, "secrets")
        self._alive[_digest(secret.value)] = secret
        return secret

    def find(self, value: str) -> Secret | None:
        """Return the secret that a client sent, or None if it is unknown or has expired."""
        secret = self._alive.get(_digest(value))
        return secret if secret is not None and self._now() < secret.expires_s else None

    def withdraw(self, caller: Principal, value: str | None = None) -> list[Secret]:
        """Withdraw the caller's secret with this value, or all of the caller's secrets. Returns the withdrawn ones."""
        self.forget()
        return self._end(lambda one: caller.reaches(one.maker) and value in (None, one.value))

    def forget(self) -> None:
        """Delete the expired secrets."""
        now_s = self._now()
        self._end(lambda one: now_s >= one.expires_s)

    def _end(self, which: Callable[[Secret], bool]) -> list[Secret]:
        ended = {digest: one for digest, one in self._alive.items() if which(one)}
        for digest, one in ended.items():
            del self._alive[digest]
            self._shares.give("secrets", one.maker)
            self._memory.count(-one.size, one.maker, "secrets")
        return list(ended.values())


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()
