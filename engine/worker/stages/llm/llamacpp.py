"""A thinker that runs a GGUF file with llama.cpp, in the worker's process.

It needs no server, and nothing leaves the machine. Computed conversations are cached for their next turn, for each API
key separately.
"""

from __future__ import annotations

import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import msgspec
import psutil

from engine.core import Message, Request, StageInfo, TextPart
from engine.deployment.config import build
from engine.errors import ConfigError, WeightsError
from engine.worker.libraries.installed import installed
from engine.worker.llm.deltas import Delta
from engine.worker.llm.gguf import PROJECTOR, Header, is_first, read_header
from engine.worker.llm.grammar.jobs import CallJob
from engine.worker.llm.llama import BATCH, Llama, LlamaSettings
from engine.worker.llm.local import LocalThinker, check_memory
from engine.worker.llm.messages import Body, body_of
from engine.worker.llm.options import LONGEST_SPOKEN_S, LocalOptions, check, read_template
from engine.worker.llm.prompted_tools import (
    CLOSE,
    OPEN,
    parsed,
    prompted,
    required_functions,
    writes_calls_as_text,
)
from engine.worker.llm.special_tokens import is_control, tokens_of_gguf
from engine.worker.llm.thinker import thinker_info
from engine.worker.stage import StageConfig
from engine.worker.streamed import Broken
from engine.worker.text.template_check import check_template

log = logging.getLogger(__name__)

MEBIBYTE = 1 << 20
CHATML = "chatml"
"""A template that llama.cpp contains. Many models without a template were trained on it."""
CHATML_MARKERS = "<|im_start|> <|im_end|>"
PROJECTORS = "*mmproj*.gguf"
"""File names of projectors in a model's folder."""
SMALL_BYTES = 1_000_000_000
"""Files below this size count as small models: most have fewer than 2 billion parameters."""
SMALL_SAMPLING = {"temperature": 0.2, "repeat_penalty": 1.1}
"""Default sampling of small models, which otherwise loop. SmolLM2 135M ended 16 of 16 answers with it, 12 without."""
SMALL_SPOKEN_S = 20.0
"""Maximum seconds of speech of small models, whose answers seldom end on their own."""
LEAST_SLOTS = 4
"""Minimum concurrent answers of a stage without ``max_batch``, if they fit into memory."""
MOST_CACHE_MB = 1024
"""Default maximum of the conversation cache, in megabytes."""
MOST_CONVERSATIONS = 64
"""Maximum conversations in progress and in the cache: llama.cpp has buffers for each. It supports up to 256."""
CACHE_BYTES = {"f16": 2.0, "f32": 4.0, "q8_0": 34 / 32}


GREETING = Request(id="warm-up", session="warm-up", messages=(Message("user", (TextPart("Hello."),)),))


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaCppOptions(LocalOptions):
    """The `options` of a stage that runs a GGUF file. Its `weights` name the file, or a folder with a single one.

    The default of ``model`` is the name in the file. ``template`` may also be "chatml". ``context`` is limited to the
    model's training context. ``images`` and ``audio`` follow from the projector.

    The stage's ``max_batch`` is the number of concurrent answers: each has its own context in memory, and further
    requests wait. Its default is as many as fit into the size of the weights and into free memory, but at least 4 if
    those fit.
    """

    temperature: float | None = None
    """The default temperature. None: 0.2 for files below 1 GB, otherwise the model's own."""
    repeat_penalty: float | None = None
    """The penalty for recently written tokens; 1: none. None: 1.1 for files below 1 GB, otherwise the model's own."""
    longest_spoken_s: float | None = None
    """Seconds of speech after which a spoken answer ends with its sentence. 0: no limit. None: 20 for files below 1 GB,
    otherwise 90."""
    mmproj: str | None = None
    """The projector's file, for a model that sees or hears. In the model's folder it is found automatically."""
    threads: int = 0
    """CPU threads. 0: one for each core but one, and at least the worker's `threads`."""
    gpu_layers: int | None = None
    """The number of layers on the GPU; -1: as many as fit. None: -1 if the worker has a device, otherwise 0."""
    cache_type: Literal["f16", "f32", "q8_0"] = "f16"
    """The type of cached keys and values."""
    cache_mb: int | None = None
    """Megabytes for conversations between two requests. None: as much as those in progress, at most 1024; on a GPU
    none.
    """

    def to_see(self) -> str:
        return "name its projector's file as mmproj in its options"


class LlamaCppStage(LocalThinker):
    """The stage."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        options = options_of(config)
        return thinker_info(planned(config, options), options)

    def __init__(self, config: StageConfig) -> None:
        options = options_of(config)
        config = planned(config, options)
        settings = settings_of(config, options)
        if settings.gpu_layers == 0:
            _check_memory(settings)
        header = read_header(settings.weights)
        template = settings.template or header.template
        if template != CHATML:
            installed("llm.llamacpp", "jinja2", "jinja2", "local")
            check_template(template, Path(options.template or settings.weights))
        self._llama = Llama(settings)
        self._template_has_tools = "tools" in template
        self._writes_calls_as_text = writes_calls_as_text(template) and not is_control(settings.weights, OPEN)
        named = CHATML_MARKERS if template == CHATML else template
        self._foreign_markers = header.foreign_markers(named)
        super().__init__(config, options, self._llama, tokens_of_gguf(settings.weights, named))

    def warm_up(self) -> None:
        """Answer a greeting with the default instructions, so that the first user does not wait for them."""
        self._llama.warm_up(body_of(GREETING, self._asked))

    async def complete(self, body: Mapping[str, Any], name: str, begun: bool = False) -> AsyncGenerator[Delta]:
        if self._foreign_markers:  # such a token ends the answer
            body = {**body, "stop": self._foreign_markers}
        if self._calls_are_text(body):
            deltas = parsed(super().complete(await self._with_calls(body), name, begun), body, name)
        else:
            deltas = super().complete(body, name, begun)
        async with aclosing(deltas):
            async for delta in deltas:
                yield delta

    def restricted(self, body: Body, grammar: str) -> Body:
        return {name: value for name, value in body.items() if name != "response_format"} | {"grammar": grammar}

    def _calls_are_text(self, body: Mapping[str, Any]) -> bool:
        """Return whether calls are enforced by our grammar, and read from the text of the answer.

        llama.cpp accepts no grammar in addition to tools. For templates with another format of calls, its own grammar
        is used for optional calls. That does not enforce all of a schema, such as ``allOf`` or limits of numbers. It
        would allow any text before a required call.
        """
        if not body.get("tools"):
            return False
        if not self._template_has_tools or required_functions(body):
            return True
        return self._writes_calls_as_text and body["tool_choice"] != "none"

    async def _with_calls(self, body: Mapping[str, Any]) -> Body:
        """Return a body without tools whose prompt has them, and whose grammar enforces their schemas."""
        required = required_functions(body)
        if self._writes_calls_as_text and not required:
            kept = {name: value for name, value in body.items() if name not in ("tools", "tool_choice")}
            asked = kept | {"chat_template_kwargs": {**kept.get("chat_template_kwargs", {}), "tools": body["tools"]}}
        else:
            asked = prompted(body)
        if body["tool_choice"] == "none":
            return asked
        functions = required or [tool["function"] for tool in body["tools"]]
        schemas = msgspec.json.encode([(one["name"], one["parameters"]) for one in functions])
        grammar = await self.grammars.compiled(CallJob(schemas, None if required else (OPEN, CLOSE)))
        return {**asked, "grammar": grammar}

    async def watch(self) -> None:
        """Raise Broken once llama.cpp does not end the answer of a client that has left, so that the worker restarts.

        Such a computation cannot be stopped, and would hold its slot.
        """
        await self._llama.stuck()
        raise Broken(f"llama.cpp does not end an answer of {self.info.facets.model} that nobody waits for")

    @property
    def processing(self) -> int:
        """The number of answers that are being computed."""
        return self._llama.processing


STAGE = LlamaCppStage


def options_of(config: StageConfig) -> LlamaCppOptions:
    """Return the options, completed from the model's file. Raises ConfigError or WeightsError."""
    if config.weights is None:
        raise ConfigError("weights: must name a GGUF file")
    options: LlamaCppOptions = build(LlamaCppOptions, dict(config.options), "options")
    for name in ("threads", "cache_mb"):
        if (value := getattr(options, name) or 0) < 0:
            raise ConfigError(f"options.{name}: must be at least 0 (got {value})")
    header = _model(_file_of(config.weights), options)
    projector = _projector(config.weights, options)
    options = replace(
        options,
        mmproj=None if projector is None else str(projector.path),
        model=options.model or header.name,
        context=min(options.context, header.context or options.context),
        images=projector is not None and projector.reads("vision"),
        audio=projector is not None and projector.reads("audio"),
        **_sampling(header, options),
    )
    check(options)
    return options


def planned(config: StageConfig, options: LlamaCppOptions) -> StageConfig:
    """Return the configuration with the number of slots that fits into memory, unless it sets one."""
    if config.slots_fixed or config.weights is None:
        return config
    weights = read_header(_file_of(config.weights)).size
    each = max(1, _conversation_bytes(config.weights, options))
    slots = max(LEAST_SLOTS, weights // each)
    if config.device == "cpu":
        slots = min(slots, (psutil.virtual_memory().available - weights) // (2 * each))  # half of it for the cache
    return replace(config, slots=max(1, min(slots, config.slots)), slots_fixed=True)


def _conversation_bytes(weights: Path, options: LlamaCppOptions) -> int:
    """Return the bytes of a conversation's keys and values."""
    return read_header(_file_of(weights)).cache_bytes(options.context, CACHE_BYTES[options.cache_type])


def _sampling(header: Header, options: LlamaCppOptions) -> dict[str, float]:
    """Return a small model's sampling and maximum speech, unless its file or the configuration sets them."""
    if header.size >= SMALL_BYTES:
        return {} if options.longest_spoken_s is not None else {"longest_spoken_s": LONGEST_SPOKEN_S}
    sampled = any(name.startswith("general.sampling.") for name in header.fields)
    needed = {"longest_spoken_s": SMALL_SPOKEN_S, **({} if sampled else SMALL_SAMPLING)}
    return {name: value for name, value in needed.items() if getattr(options, name) is None}


def _file_of(weights: Path) -> Path:
    """Return the model's file: ``weights`` itself, or the only one in that folder. Raises WeightsError."""
    if not weights.is_dir():
        return weights
    projectors = set(weights.glob(PROJECTORS))
    found = [file for file in sorted(weights.glob("*.gguf")) if file not in projectors and is_first(file)]
    if len(found) != 1:
        names = f": {', '.join(file.name for file in found)}; name one" if found else ""
        raise WeightsError(f"{weights}: holds {len(found) or 'no'} models (files that end with .gguf){names}")
    return found[0]


def _model(weights: Path, options: LlamaCppOptions) -> Header:
    header = read_header(weights)
    if header.architecture == PROJECTOR:
        raise WeightsError(f"{weights}: is a projector, not a language model; name it in options.mmproj")
    if not header.template and options.template is None:
        raise WeightsError(
            f"{weights}: has no chat template. Give one as options.template: "
            f'a Jinja file, or "{CHATML}" if the model was trained on that.'
        )
    return header


def _projector(weights: Path, options: LlamaCppOptions) -> Header | None:
    beside = sorted(weights.glob(PROJECTORS)) if weights.is_dir() else []
    named = options.mmproj or next(map(str, beside), None)
    if named is None:
        for name in ("images", "audio"):
            if getattr(options, name):
                raise ConfigError(f"options.{name}: needs the model's projector; name its file in options.mmproj")
        return None
    header = read_header(Path(named))
    if header.architecture != PROJECTOR:
        raise WeightsError(
            f"{named}: is a model of the architecture {header.architecture or 'unknown'}, not a projector. "
            "Set options.mmproj to the model's mmproj file"
        )
    return header


def settings_of(config: StageConfig, options: LlamaCppOptions) -> LlamaSettings:
    """Return the settings for loading the model. Raises ConfigError if the template cannot be read."""
    assert config.weights is not None  # checked by `options_of`
    weights = _file_of(config.weights)
    cores = psutil.cpu_count(logical=False) or 1
    return LlamaSettings(
        weights=weights,
        name=options.model,
        context=options.context,
        slots=config.slots,
        threads=options.threads or max(config.threads, cores - 1),
        gpu_layers=(0 if config.device == "cpu" else -1) if options.gpu_layers is None else options.gpu_layers,
        cache_type=options.cache_type,
        kept=_kept(config, weights, options),
        template=_template(options.template),
        projector=None if options.mmproj is None else Path(options.mmproj),
    )


def _kept(config: StageConfig, weights: Path, options: LlamaCppOptions) -> int:
    """Return the number of conversations that the cache holds."""
    each = max(1, _conversation_bytes(weights, options))
    if options.cache_mb is not None:
        most = options.cache_mb * MEBIBYTE // each
    elif config.device == "cpu":
        most = min(config.slots, MOST_CACHE_MB * MEBIBYTE // each)
    else:
        most = 0
    return max(0, min(most, MOST_CONVERSATIONS - config.slots))


def _template(given: str | None) -> str:
    if given is None or given == CHATML:
        return given or ""
    return read_template(given)


def _check_memory(settings: LlamaSettings) -> None:
    """Log the memory that this process needs with the model. Raises WeightsError if this machine has too little."""
    files = [settings.weights, *([settings.projector] if settings.projector else [])]
    weights = sum(read_header(file).size for file in files)
    header = read_header(settings.weights)
    each = header.cache_bytes(settings.context, CACHE_BYTES[settings.cache_type])
    cache = each * (settings.slots + settings.kept) + header.logits_bytes(BATCH)
    conversations = f"{settings.slots + settings.kept} conversations of {settings.context} tokens"
    check_memory(settings.weights, weights, cache, conversations)
    program = psutil.Process().memory_info().rss
    log.info(
        "%s: up to %.0f MB of memory (%.0f for the weights, %.0f for the program, the rest for %s)",
        settings.weights.name,
        (weights + program + cache) / 1e6,
        weights / 1e6,
        program / 1e6,
        conversations,
    )
