"""Options of stages that use a remote server: its URL, model, key file and proxies."""

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
    """The `options` of every stage that uses a remote server. (Without slots, so that it can be combined.)"""

    url: str
    """The URL where the API begins, like http://127.0.0.1:11434/v1. Without a path, /v1 is added."""
    model: str
    """The server's name for the model."""
    key_file: str | None = None
    """A file with the server's API key, which nobody else may be able to read (chmod 600)."""
    allow_plain: bool = False
    """Whether the key may be sent to another machine unencrypted."""
    env_proxies: bool = False
    """Whether to use the proxies of the environment (HTTPS_PROXY and so on)."""

    @property
    def base(self) -> str:
        """Return the API's address, with a slash at the end."""
        parts = urlsplit(self.url)
        path = _ENDPOINTS.sub("", parts.path.rstrip("/")) or "/v1"
        return f"{parts.scheme}://{parts.netloc}{path}/"

    @property
    def host(self) -> str:
        """Return the ``host:port`` that receives the requests."""
        return host_of(self.url)

    @property
    def who(self) -> str:
        """The server, as the subject of a sentence."""
        return f"The server at {self.host}"


def check_server(options: ServerOptions) -> None:
    """Check the address, the key and the model. Raises ConfigError, whose message shows no secret."""
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
    """Check options that are waiting times in seconds. Raises ConfigError."""
    for name in names:
        if not 0 < getattr(options, name) < math.inf:
            raise ConfigError(f"options.{name}: must be a positive, finite number")


def check_language(language: str) -> None:
    """Check an option that is empty or a BCP 47 language tag. Raises ConfigError."""
    if language and not _LANGUAGE.fullmatch(language):
        raise ConfigError(f"options.language: {language!r:.80} is not a language tag; use one like en or de-AT")
