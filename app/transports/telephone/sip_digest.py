"""Digest authentication of SIP requests by a user name and a password.

Source: RFC 3261, 22; RFC 7616 and RFC 2617 (digest); RFC 8760 (SHA-256 in SIP). Sans-I/O. The server stores nothing for
a challenge: a nonce carries its own time and proof, and belongs to one address.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
import time
from collections.abc import Callable, Iterable
from typing import Literal

from app.limits.lru_table import LruTable
from app.settings import Telephone
from engine.deployment.secret_file import read_secret

REALM = "parley"

NONCE_S = 60.0
"""Seconds for which a nonce is valid: a client answers a challenge at once, and may use its nonce again."""

MOST_NONCES = 4096
"""Maximum number of nonces whose use is counted. A forgotten one is valid for NONCE_S at most."""

HASHES = {"SHA-256": "sha256", "MD5": "md5"}
"""The supported algorithms in order of preference, by their names in SIP. Many telephones know only MD5."""

Verdict = Literal["right", "stale", "wrong", "none"]

_PARAMETER = re.compile(r'([a-z]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))', re.IGNORECASE)
_COUNT = re.compile(r"[0-9a-f]{8}", re.IGNORECASE)


class Digest:
    """SIP digest authentication: challenges callers, and checks that they know the account.

    ``now`` returns monotonic seconds.
    """

    def __init__(self, user: str, password: str, now: Callable[[], float] = time.monotonic) -> None:
        self._user = user
        self._password = password
        self._now = now
        self._secret = secrets.token_bytes(32)
        self._counts = LruTable[str, int](MOST_NONCES)

    @classmethod
    def of(cls, settings: Telephone) -> Digest | None:
        """Return the configured account, if any. Raises ConfigError if its password can't be read."""
        if settings.sip_user is None:
            return None
        password = read_secret(settings.sip_password_file or "", "server.telephone.sip_password_file")
        return cls(settings.sip_user, password)

    def challenges(self, address: str, stale: bool = False) -> list[tuple[str, str]]:
        """Return the headers that request authentication, one for each algorithm."""
        nonce, more = self._nonce(address), ", stale=true" if stale else ""
        start = f'Digest realm="{REALM}", nonce="{nonce}", qop="auth"'
        return [("www-authenticate", f"{start}, algorithm={name}{more}") for name in HASHES]

    def verdict(self, method: str, authorizations: Iterable[str], address: str) -> Verdict:
        """Check the Authorization headers of a request.

        "stale" means that the nonce is too old or was used, "wrong" that the response to a valid nonce is wrong.
        """
        found: Verdict = "none"
        for header in authorizations:
            given = _parameters(header)
            if given is not None and given.get("realm") == REALM and given.get("algorithm", "MD5").upper() in HASHES:
                found = self._check(method, given, address)
                if found == "right":
                    break
        return found

    def _check(self, method: str, given: dict[str, str], address: str) -> Verdict:
        nonce, count = given.get("nonce", ""), given.get("nc", "")
        if given.get("qop") != "auth" or not _COUNT.fullmatch(count):
            return "none"
        if not self._is_valid(nonce, address) or int(count, 16) <= self._counts.get(nonce, 0):
            return "stale"
        expected = self._response(method, given).encode()
        if not hmac.compare_digest(given.get("response", "").lower().encode(), expected):
            return "wrong"
        self._counts[nonce] = int(count, 16)
        return "right"

    def _response(self, method: str, given: dict[str, str]) -> str:
        """Return the right response to these parameters (RFC 7616, 3.4.1).

        The digest is always computed for our user; the ``username`` in ``given`` is ignored.
        """
        algorithm = HASHES[given.get("algorithm", "MD5").upper()]

        def digest(*parts: str) -> str:
            return hashlib.new(algorithm, ":".join(parts).encode(), usedforsecurity=False).hexdigest()

        account = digest(self._user, REALM, self._password)
        request = digest(method, given.get("uri", ""))
        return digest(account, given["nonce"], given["nc"], given.get("cnonce", ""), "auth", request)

    def _nonce(self, address: str) -> str:
        made = f"{round(self._now() * 1000):x}.{secrets.token_hex(4)}"
        return f"{made}.{self._proof(made, address)}"

    def _proof(self, made: str, address: str) -> str:
        return hmac.digest(self._secret, f"{made} {address}".encode(), "sha256").hex()[:32]

    def _is_valid(self, nonce: str, address: str) -> bool:
        """Return whether a nonce was made here, for this address, and is not too old."""
        made, _, proof = nonce.rpartition(".")
        expected = self._proof(made, address).encode()
        if not hmac.compare_digest(proof.encode(), expected):
            return False
        return self._now() - int(made.partition(".")[0], 16) / 1000 <= NONCE_S


def _parameters(header: str) -> dict[str, str] | None:
    """Return the parameters of a Digest header by lower-case name; None for another scheme."""
    scheme, _, rest = header.partition(" ")
    if scheme.lower() != "digest":
        return None
    return {name.lower(): quoted or plain for name, quoted, plain in _PARAMETER.findall(rest)}
