"""A configuration's options for a language model: how it is asked, and where its server is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.deployment.config import build
from engine.deployment.remote_hosts import is_local
from engine.errors import ConfigError
from engine.worker.remote.options import ServerOptions, check_server, check_times

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
    """The most tokens that a prompt and its answer may have: longer conversations are cut at their beginning."""
    first_token_s: float = 30.0
    """An answer of which nothing has come by then is given up."""
    stall_s: float = 20.0
    """Seconds without anything more, after which an answer that has begun is given up."""
    images: bool = False
    """Whether the model sees pictures."""
    audio: bool = False
    """Whether the model hears sound."""
    thinking: bool = False
    """Whether the model may think before it answers: nobody hears anything until it is done."""
    temperature: float | None = None
    """The temperature where a request names none; None leaves the model's own."""
    top_p: float | None = None
    """The share of likely tokens that are drawn from, where a request names none; None leaves the model's own."""
    top_k: int | None = None
    """The number of likely tokens that are drawn from; 0 is all. None leaves the model's own."""
    min_p: float | None = None
    """The least probability of a token, as a share of the likeliest one's; None leaves the model's own."""
    repeat_penalty: float | None = None
    """The penalty for tokens that were written lately; 1 is none, 1.1 ends most loops. None leaves the model's own."""
    longest_spoken_s: float | None = None
    """The seconds of speech after which a spoken answer ends with its sentence. None: no limit of its own."""
    instructions_suffix: str = SPOKEN
    """The text that stands behind the instructions of every conversation; empty for nothing."""

    def to_see(self) -> str:
        """Say what gives the model its sight, as the end of a sentence."""
        return "set images: true in its options"

    def extras(self) -> dict[str, Any]:
        """Fields of a request that not every server takes; a client leaves out what a server refuses."""
        # llama.cpp and LM Studio know the penalty by the first name, vLLM and SGLang by the second.
        penalties = dict.fromkeys(("repeat_penalty", "repetition_penalty"), self.repeat_penalty)
        drawn = {"top_k": self.top_k, "min_p": self.min_p, **penalties}
        return self.no_thinking() | {name: value for name, value in drawn.items() if value is not None}

    def no_thinking(self) -> dict[str, Any]:
        """Fields that turn thinking off, where it is not wanted."""
        if self.thinking:
            return {}
        # Ollama obeys the first only, llama.cpp, vLLM and SGLang the second.
        return {"reasoning_effort": "none", "chat_template_kwargs": {"enable_thinking": False}}


@dataclass(frozen=True, slots=True, kw_only=True)
class LocalOptions(ModelOptions):
    """The options of a stage whose model is loaded into its worker. Without a ``model``, its files say what it is
    called."""

    model: str = ""
    template: str | None = None
    """A file of Jinja with the model's chat template, where its files have none or a wrong one."""

    def no_thinking(self) -> dict[str, Any]:
        return ModelOptions.no_thinking(self) or {"chat_template_kwargs": {"enable_thinking": True}}


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatServerOptions(ModelOptions, ServerOptions):
    """The `options` of a stage that asks a chat completions server.

    ``model`` is the name by which that server calls it. Of ``context``, Ollama takes no more than the default unless
    it is told to; most servers do.
    """

    prepare: bool | None = None
    """Whether the server reads what is known of a prompt while the user still speaks, so that the answer begins sooner.
    That is asked for as an answer of one token; without a word here, of servers on this machine only."""
    keep_alive: str | int | None = None
    """The time that Ollama is to keep the model loaded, as "30m"; -1 is for ever. None leaves the server's own."""

    def extras(self) -> dict[str, Any]:
        kept = {} if self.keep_alive is None else {"keep_alive": self.keep_alive}
        return ModelOptions.extras(self) | kept

    @property
    def prepares(self) -> bool:
        return is_local(self.url) if self.prepare is None else self.prepare

    @property
    def own_api(self) -> str:
        """Return where the server's own API begins, beside OpenAI's, with a slash at its end."""
        return self.base.removesuffix("v1/")

    @property
    def who(self) -> str:
        return f"The language model's server at {self.host}"


def options_of(mapping: Mapping[str, Any]) -> ChatServerOptions:
    """The options that a configuration gives. Raises ConfigError, which names what is wrong and shows no secret."""
    options: ChatServerOptions = build(ChatServerOptions, dict(mapping), "options")
    check_server(options)
    check(options)
    return options


def check(options: ModelOptions) -> None:
    """Check what types alone cannot express. Raises ConfigError."""
    check_times(options, ("first_token_s", "stall_s"))
    if options.context < 256:
        raise ConfigError("options.context: must be at least 256 tokens")
    for name, fits, what in (
        ("top_k", lambda value: value >= 0, "at least 0"),
        ("min_p", lambda value: 0 <= value <= 1, "between 0 and 1"),
        ("repeat_penalty", lambda value: 0 < value < 10, "above 0 and below 10"),
        ("longest_spoken_s", lambda value: 1 <= value <= 3600, "between 1 and 3600"),
    ):
        value = getattr(options, name)
        if value is not None and not fits(value):
            raise ConfigError(f"options.{name}: must be {what} (got {value})")
    if not options.model:
        raise ConfigError("options.model: must be the name of a model")
