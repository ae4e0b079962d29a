"""A configuration's options for a server that a stage asks: where it is, and how it is reached."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

from engine.deployment.remote_hosts import host_of, is_local
from engine.errors import ConfigError

_SIGNS = re.compile(r"[!-~]+")  # RFC 3986: printable ASCII
_LANGUAGE = re.compile(r"[A-Za-z]{2,3}(-[A-Za-z0-9]{2,8})*")  # RFC 5646, as far as speech needs it
_ENDPOINTS = re.compile(r"/(?:chat/completions|audio/speech|audio/transcriptions)$")


@dataclass(frozen=True, kw_only=True)
class ServerOptions:
    """The `options` that every stage has which asks a server. (No slots: a model's own options may be joined to it.)"""

    url: str
    """The URL where the API begins, as http://127.0.0.1:11434/v1. Without a path, /v1 is meant."""
    model: str
    """The name by which the server calls its model."""
    key_file: str | None = None
    """A file with the server's API key, which nobody else may be able to read (chmod 600)."""
    allow_plain: bool = False
    """Whether the key may go to another machine unencrypted."""
    env_proxies: bool = False
    """Whether the proxies of the environment (HTTPS_PROXY and so on) are used."""

    @property
    def base(self) -> str:
        """Return where the API begins, with a slash at its end."""
        parts = urlsplit(self.url)
        path = _ENDPOINTS.sub("", parts.path.rstrip("/")) or "/v1"
        return f"{parts.scheme}://{parts.netloc}{path}/"

    @property
    def host(self) -> str:
        """Return the ``host:port`` that gets the requests."""
        return host_of(self.url)

    @property
    def who(self) -> str:
        """The server as the subject of a sentence."""
        return f"The server at {self.host}"


def check_server(options: ServerOptions) -> None:
    """Check what types alone cannot express. Raises ConfigError, which shows no secret."""
    try:
        parts = urlsplit(options.url)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ConfigError("options.url: is not a server URL; use one like http://127.0.0.1:11434/v1") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(
            "options.url: must not contain a user name or password; put the key into a file and name it as key_file"
        )
    if not named or parts.query or parts.fragment or not _SIGNS.fullmatch(options.url):
        raise ConfigError("options.url: is not a server URL; use one like http://127.0.0.1:11434/v1")
    if options.key_file and parts.scheme == "http" and not is_local(options.url) and not options.allow_plain:
        raise ConfigError(
            f"options.url: The key would go to {options.host} unencrypted. Use https://, or set allow_plain: true if "
            "you own the network between."
        )
    if not options.model:
        raise ConfigError("options.model: must be the name of a model")


def check_times(options: object, names: Iterable[str]) -> None:
    """Options that are seconds to wait. Raises ConfigError."""
    for name in names:
        if not 0 < getattr(options, name) < math.inf:
            raise ConfigError(f"options.{name}: must be a positive, finite number")


def check_language(language: str) -> None:
    """An option that is a language as BCP 47, or nothing. Raises ConfigError."""
    if language and not _LANGUAGE.fullmatch(language):
        raise ConfigError(f"options.language: {language!r:.80} is not a language tag; use one like en or de-AT")
