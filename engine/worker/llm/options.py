"""Stage options for language models: sampling, limits, and the server's address."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engine.core import JsonFormat, TokenCost
from engine.deployment.config import build
from engine.deployment.remote_hosts import is_local
from engine.errors import ConfigError
from engine.worker.remote.options import ServerOptions, check_server, check_times

SPOKEN = (
    "Your answers are spoken aloud. Answer in short, plain sentences as people say them: no markdown, no lists, no "
    "tables, no code, no emoji."
)

JSON_ONLY = "Answer only with JSON."
SCHEMA_SHARE = 0.25
"""Maximum share of the context for a JSON schema in the instructions."""

LONGEST_SPOKEN_S = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelOptions:
    """Stage `options` of all thinkers with a chat completions interface."""

    model: str
    """Name of the model."""
    context: int = 4096
    """Maximum tokens of a prompt with its answer. Longer conversations are cut at their beginning."""
    first_token_s: float = 30.0
    """Seconds until the first token after which an answer fails."""
    stall_s: float = 20.0
    """Seconds without a further token after which an answer fails."""
    images: bool = False
    """Whether the model accepts images."""
    audio: bool = False
    """Whether the model accepts audio."""
    tools: bool = True
    """Whether the model may call a session's functions. With false, it does not read their schemas."""
    thinking: bool = False
    """Whether the model may reason before it answers. The user hears nothing until it has finished."""
    temperature: float | None = None
    """Default temperature; None uses the model's own."""
    top_p: float | None = None
    """Default top-p (nucleus sampling); None uses the model's own."""
    top_k: int | None = None
    """Number of most likely tokens to sample from; 0 for all. None uses the model's own."""
    min_p: float | None = None
    """Minimum probability of a token relative to the most likely one; None uses the model's own."""
    repeat_penalty: float | None = None
    """Penalty for recently written tokens: 1 is none, 1.1 ends most loops. None uses the model's own."""
    longest_spoken_s: float | None = LONGEST_SPOKEN_S
    """Seconds of speech after which a spoken answer ends with its sentence. The user can ask to go on. 0: no limit."""
    instructions_suffix: str = SPOKEN
    """Text appended to the instructions of every conversation; may be empty. Answers in JSON are without it."""

    def suffix(self, format: JsonFormat | None) -> str:
        """Return the end of the instructions for an answer in this format."""
        return self.instructions_suffix if format is None else ""

    def to_see(self) -> str:
        """Return how to enable image input, as the end of a sentence."""
        return "set images: true in its options"

    def extras(self) -> dict[str, Any]:
        """Return request fields that not all servers support; the client omits those that a server refuses."""
        # llama.cpp and LM Studio use the first name of the penalty, vLLM and SGLang the second.
        penalties = dict.fromkeys(("repeat_penalty", "repetition_penalty"), self.repeat_penalty)
        drawn = {"top_k": self.top_k, "min_p": self.min_p, **penalties}
        return self.no_thinking() | {name: value for name, value in drawn.items() if value is not None}

    def no_thinking(self) -> dict[str, Any]:
        """Return the request fields that disable reasoning, unless it is wanted."""
        if self.thinking:
            return {}
        # Ollama supports only the first field; llama.cpp, vLLM and SGLang support the second.
        return {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False}}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions(ModelOptions):
    """Options of a stage that loads the model into its worker. By default, the model's name comes from its files."""

    model: str = ""
    template: str | None = None
    """Jinja file with the chat template, if the model's files have none or a wrong one."""

    def suffix(self, format: JsonFormat | None) -> str:
        """Return the end of the instructions. The model reads its JSON schema if that takes little of the context."""
        if format is None:
            return self.instructions_suffix
        schema = "" if format.schema is None else msgspec.json.encode(format.schema).decode()
        if not schema or len(schema) * TokenCost().instruction > self.context * SCHEMA_SHARE:
            return JSON_ONLY
        return " ".join(filter(None, [JSON_ONLY, f"The JSON schema of the answer is: {schema}", format.description]))

    def no_thinking(self) -> dict[str, Any]:
        return ModelOptions.no_thinking(self) or {"chat_template_kwargs": {"enable_thinking": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatServerOptions(ModelOptions, ServerOptions):
    """Stage `options` for a chat completions server.

    ``model`` is the server's name of the model. Ollama limits ``context`` to its own default unless configured
    otherwise.
    """

    prepare: bool | None = None
    """Whether the server prefills the known part of the prompt while the user speaks, by an answer of one token.
    Default: only for servers on this machine.
    """
    keep_alive: str | int | None = None
    """How long Ollama keeps the model loaded, such as "30m"; -1 for ever. None uses the server's default."""

    def extras(self) -> dict[str, Any]:
        kept = {} if self.keep_alive is None else {"keep_alive": self.keep_alive}
        return ModelOptions.extras(self) | kept

    @property
    def prepares(self) -> bool:
        return is_local(self.url) if self.prepare is None else self.prepare

    @property
    def own_api(self) -> str:
        """Base URL of the server's own API (not OpenAI's), with a trailing slash."""
        return self.base.removesuffix("v1/")

    @property
    def who(self) -> str:
        return f"The language model's server at {self.host}"


def options_of(mapping: Mapping[str, Any]) -> ChatServerOptions:
    """Parse and check a stage's options. Raises ConfigError without revealing secrets."""
    options: ChatServerOptions = build(ChatServerOptions, dict(mapping), "options")
    check_server(options)
    check(options)
    return options


def read_template(file: str) -> str:
    """Return the chat template of ``options.template``. Raises ConfigError."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"options.template: {file} cannot be read: {reason}") from None


def check(options: ModelOptions) -> None:
    """Check values that types cannot express. Raises ConfigError."""
    check_times(options, ("first_token_s", "stall_s"))
    if options.context < 256:
        raise ConfigError("options.context: must be at least 256 tokens")
    for name, fits, what in (
        ("top_k", lambda value: value >= 0, "at least 0"),
        ("min_p", lambda value: 0 <= value <= 1, "between 0 and 1"),
        ("repeat_penalty", lambda value: 0 < value < 10, "above 0 and below 10"),
        ("longest_spoken_s", lambda value: value == 0 or 1 <= value <= 3600, "0, or between 1 and 3600"),
    ):
        value = getattr(options, name)
        if value is not None and not fits(value):
            raise ConfigError(f"options.{name}: must be {what} (got {value})")
    if not options.model:
        raise ConfigError("options.model: must be the name of a model")
