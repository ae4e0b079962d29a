"""What a configuration says of a language model: how it is asked, and where its server is."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from engine.config import build
from engine.errors import ConfigError
from engine.remote import host_of, is_local

_SIGNS = re.compile(r"[!-~]+")  # RFC 3986: printable ASCII
SPOKEN = (
    "Your answers are spoken aloud. Answer in short, plain sentences as people say them: no markdown, no lists, no "
    "tables, no code, no emoji."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """The `options` that every thinker has which is asked by a chat completion's messages."""

    model: str
    """The model's name."""
    context: int = 4096
    """How many tokens a prompt and its answer may have: longer conversations are cut at their beginning."""
    first_token_s: float = 30.0
    """An answer of which nothing has come by then is given up."""
    stall_s: float = 20.0
    """So is one of which nothing more comes for so long."""
    images: bool = False
    """Whether the model sees pictures."""
    audio: bool = False
    """Whether the model hears sound."""
    thinking: bool = False
    """Whether the model may think before it answers: nobody hears anything until it is done."""
    temperature: float | None = None
    """Where a request names none; None leaves the model's own."""
    top_p: float | None = None
    instructions_suffix: str = SPOKEN
    """Stands behind the instructions of every conversation; empty for nothing."""

    def extras(self) -> dict[str, Any]:
        """Fields of a request that not every server takes; a client leaves out what a server refuses."""
        if self.thinking:
            return {}
        # Ollama obeys the first only, llama.cpp, vLLM and SGLang the second.
        return {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False}}


@dataclass(frozen=True, slots=True, kw_only=True)
class Options(ModelOptions):
    """The `options` of a stage that asks a chat completions server.

    ``model`` is the name by which that server calls it. Of ``context``, Ollama takes no more than the default unless
    it is told to; most servers do.
    """

    url: str
    """Where the API begins, as http://127.0.0.1:11434/v1. Without a path, /v1 is meant."""
    key_file: str | None = None
    """A file with the server's API key, which nobody else may be able to read (chmod 600)."""
    allow_plain: bool = False
    """Whether the key may go to another machine unencrypted."""
    env_proxies: bool = False
    """Whether the proxies of the environment (HTTPS_PROXY and so on) are used."""
    keep_alive: str | int | None = None
    """How long Ollama is to keep the model loaded, as "30m"; -1 is for ever. None leaves the server's own."""

    def extras(self) -> dict[str, Any]:
        kept = {} if self.keep_alive is None else {"keep_alive": self.keep_alive}
        return ModelOptions.extras(self) | kept

    @property
    def base(self) -> str:
        """Where the API begins, with a slash at its end."""
        parts = urlsplit(self.url)
        path = parts.path.rstrip("/").removesuffix("/chat/completions") or "/v1"
        return f"{parts.scheme}://{parts.netloc}{path}/"

    @property
    def own_api(self) -> str:
        """Where the server's own API begins, beside OpenAI's, with a slash at its end."""
        return self.base.removesuffix("v1/")

    @property
    def host(self) -> str:
        """Who gets what is asked: ``host:port``."""
        return host_of(self.url)


def options_of(mapping: Mapping[str, Any], path: str = "options") -> Options:
    """The options that a configuration gives. Raises ConfigError, which names what is wrong and shows no secret."""
    options: Options = build(Options, dict(mapping), path)
    _check_url(options, path)
    check(options, path)
    return options


def check(options: ModelOptions, path: str) -> None:
    """What types alone cannot say of any of them. Raises ConfigError."""
    for name in ("first_token_s", "stall_s"):
        if not 0 < getattr(options, name) < math.inf:
            raise ConfigError(f"{path}.{name}: must be above 0")
    if options.context < 256:
        raise ConfigError(f"{path}.context: must be at least 256 tokens")
    if not options.model:
        raise ConfigError(f"{path}.model: must be the name of a model")


def _check_url(options: Options, path: str) -> None:
    where = f"{path}.url"
    try:
        parts = urlsplit(options.url)
        named = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        raise ConfigError(f"{where}: is no address; give one like http://127.0.0.1:11434/v1") from None
    if parts.username is not None or parts.password is not None:
        raise ConfigError(f"{where}: must hold no user and no password; put the key into a file, and name it: key_file")
    if not named or parts.query or parts.fragment or not _SIGNS.fullmatch(options.url):
        raise ConfigError(f"{where}: is no address of a server; give one like http://127.0.0.1:11434/v1")
    if options.key_file and parts.scheme == "http" and not is_local(options.url) and not options.allow_plain:
        raise ConfigError(
            f"{where}: The key would go to {options.host} unencrypted. Use https://, or set allow_plain: true where "
            "the network between is yours."
        )
