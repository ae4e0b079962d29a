"""The handshake by which a server and a worker from another machine authenticate each other. Sans I/O.

::

    worker → server   GREETING
    server → worker   GREETING, 32 random bytes
    worker → server   32 random bytes, HMAC-SHA256(token, "worker" + both randoms)
    server → worker   HMAC-SHA256(token, "server" + both randoms)

Both sides have the token. It is never sent, and fresh random bytes make every proof useless for a second connection.
The greeting contains the protocol version, so different versions fail before any other exchange.
The messages after the handshake are neither encrypted nor signed: use a trusted network or a tunnel.
"""

from __future__ import annotations

import hashlib
import hmac
import os
import secrets
from pathlib import Path

from engine.deployment.secret_file import read_secret_bytes
from engine.errors import ConfigError, WireError
from engine.ipc.protocol_version import ANOTHER, VERSION

_OURS = b"parley/"
GREETING = _OURS + VERSION.encode()
_RANDOM = _PROOF = 32


class Doorkeeper:
    """The server's side of the handshake. Send ``greeting``, then pass received bytes to ``feed`` until ``done``."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._ours = secrets.token_bytes(_RANDOM)
        self._read = b""
        self.greeting = GREETING + self._ours
        self.done = False

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Process received bytes.

        Returns:
            The bytes to send, and the received bytes that follow the handshake.

        Raises:
            WireError: The client is not a Parley worker of this version, or does not have the token.
        """
        self._read += data
        answer = self._read[len(GREETING) :]
        if not _greets(self._read, "it") or len(answer) < _RANDOM + _PROOF:
            return b"", b""
        theirs, proof = answer[:_RANDOM], answer[_RANDOM : _RANDOM + _PROOF]
        if not hmac.compare_digest(proof, _prove(self._token, b"worker", self._ours + theirs)):
            raise WireError("its token differs from this server's; give the worker a copy of the server's token file")
        self.done = True
        return _prove(self._token, b"server", self._ours + theirs), answer[_RANDOM + _PROOF :]


class Visitor:
    """The worker's side of the handshake. Send ``GREETING``, then pass received bytes to ``feed`` until ``done``."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self._ours = secrets.token_bytes(_RANDOM)
        self._theirs: bytes | None = None
        self._read = b""
        self.done = False

    @property
    def asked(self) -> bool:
        """Whether the server's greeting has arrived. If the server hangs up now, it rejected the proof."""
        return self._theirs is not None

    def feed(self, data: bytes) -> tuple[bytes, bytes]:
        """Process received bytes.

        Returns:
            The bytes to send, and the received bytes that follow the handshake.

        Raises:
            WireError: The server is not a Parley server of this version, or does not have the token.
        """
        self._read += data
        if self._theirs is None:
            return self._answer(), b""
        if len(self._read) < _PROOF:
            return b"", b""
        if not hmac.compare_digest(self._read[:_PROOF], _prove(self._token, b"server", self._theirs + self._ours)):
            raise WireError("the server has a different token; give this worker a copy of the server's token file")
        self.done = True
        return b"", self._read[_PROOF:]

    def _answer(self) -> bytes:
        if not _greets(self._read, "the server") or len(self._read) < len(GREETING) + _RANDOM:
            return b""
        self._theirs = self._read[len(GREETING) : len(GREETING) + _RANDOM]
        self._read = self._read[len(GREETING) + _RANDOM :]
        return self._ours + _prove(self._token, b"worker", self._theirs + self._ours)


def _greets(read: bytes, who: str) -> bool:
    """Whether the whole greeting has arrived. Raises WireError if a different one has."""
    if not GREETING.startswith(read[: len(GREETING)]):
        raise WireError(f"{who} {ANOTHER}" if read.startswith(_OURS) else f"{who} does not speak Parley's protocol")
    return len(read) >= len(GREETING)


def read_token(path: Path) -> bytes:
    """Read the token from a file.

    Raises:
        ConfigError: The file is unreadable, readable by other users, or holds less than 16 bytes.
    """
    token = read_secret_bytes(path, "The workers' token")
    if len(token) < 16:
        raise ConfigError(f"{path}: the workers' token is too short ({len(token)} bytes); use at least 16")
    return token


def make_token(path: Path) -> bytes:
    """Create a random token in a new file that only its owner can read.

    Raises:
        ConfigError: The file exists already, or cannot be written.
    """
    token = secrets.token_hex(_RANDOM).encode()
    try:
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(token + b"\n")
    except OSError as error:
        raise ConfigError(f"{path}: cannot write the token: {error.strerror}") from None
    return token


def _prove(token: bytes, who: bytes, randoms: bytes) -> bytes:
    return hmac.digest(token, who + randoms, hashlib.sha256)
