"""The thinker that vLLM runs for its worker: a checkpoint's folder, on a GPU, for many conversations at once.

vLLM pins what other stages cannot have, so its worker has an environment of its own (`make vllm` makes it,
``workers[].python`` names it). No server is between, and nothing leaves the machine. What was computed of a
conversation is kept for its next turn.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from engine.core import StageInfo
from engine.deployment.config import build
from engine.errors import ConfigError
from engine.worker.llm.checkpoint import VALUE_BYTES, ModelFolder, read_checkpoint
from engine.worker.llm.local import LocalThinker, check_memory
from engine.worker.llm.options import LocalOptions, check
from engine.worker.llm.thinker import thinker_info
from engine.worker.llm.vllm_engine import VllmEngine, VllmSettings
from engine.worker.stage import StageConfig
from engine.worker.streamed import Broken

AS_STORED = "auto"
"""vLLM's word for the checkpoint's own type of numbers, where that is a small one."""
TOOL_PARSERS = {
    "<function=": "qwen3_coder",
    "<tool_call>": "hermes",
    "[TOOL_CALLS]": "mistral",
    "<|python_tag|>": "llama3_json",
    '"name": function name': "llama3_json",
}
"""Signs in a template that show how its model calls functions, and vLLM's parser of that; the first one counts."""
OWN_ARGUMENTS = {
    "model": "the stage's weights",
    "served_model_name": "options.model",
    "max_model_len": "options.context",
    "max_num_seqs": "the stage's max_batch",
    "dtype": "the stage's dtype",
    "trust_remote_code": "nothing: a checkpoint's own code is not run",
}
"""Engine arguments that are said elsewhere, and where."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions(LocalOptions):
    """The `options` of a stage whose `weights` name a checkpoint's folder, as Hugging Face lays it out.

    ``model`` is the folder's name, unless one is given. No conversation is longer than the model's training had them,
    whatever ``context`` says. A model that sees or hears gets pictures and sound (``images``, ``audio``). The stage's
    ``max_batch`` is the number of answers that are made at once. Its ``dtype`` may be bfloat16, float16 or float32; on
    a device float32, which is the default, means the checkpoint's own. A worker sees its own device alone; one whose
    ``devices`` are ``[cuda]`` sees all, for vLLM's ``tensor_parallel_size`` (not tried).
    """

    tool_parser: str | None = None
    """The tool parser of vLLM's that reads the model's function calls; without one, the template is looked at."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further engine arguments of vLLM, by their names in Python, as ``{gpu_memory_utilization: 0.5}``."""


class VllmStage(LocalThinker):
    """vLLM, in processes of its own that end with this one."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return thinker_info(config, options_of(config)[0])

    def __init__(self, config: StageConfig) -> None:
        options, checkpoint = options_of(config)
        self._vllm = VllmEngine(settings_of(config, options, checkpoint))
        super().__init__(config, options, self._vllm)

    async def watch(self) -> None:
        """Raise Broken once vLLM's engine has failed, so that the worker is restarted."""
        await self._vllm.over()
        raise Broken(f"vLLM's engine, which runs {self.info.facets.model}, has ended")


STAGE = VllmStage


def options_of(config: StageConfig) -> tuple[VllmOptions, ModelFolder]:
    """The options that a configuration gives, with what the checkpoint says. Raises ConfigError or WeightsError."""
    if config.weights is None:
        raise ConfigError("weights: must name the checkpoint's folder")
    options: VllmOptions = build(VllmOptions, dict(config.options), "options")
    for name in options.arguments:
        if name in OWN_ARGUMENTS:
            raise ConfigError(f"options.arguments.{name}: is set by {OWN_ARGUMENTS[name]}; set that one")
    if options.template is not None and not Path(options.template).is_file():
        raise ConfigError(f"options.template: there is no file {options.template}")
    checkpoint = read_checkpoint(config.weights, template=options.template is None)
    options = replace(
        options,
        model=options.model or checkpoint.name,
        context=min(options.context, checkpoint.context or options.context),
        images=options.images or checkpoint.reads("vision"),
        audio=options.audio or checkpoint.reads("audio"),
        tool_parser=options.tool_parser or _tool_parser(checkpoint.template),
    )
    check(options)
    return options, checkpoint


def _tool_parser(template: str) -> str | None:
    if "tools" not in template:
        return None
    return next((parser for mark, parser in TOOL_PARSERS.items() if mark in template), None)


def settings_of(config: StageConfig, options: VllmOptions, checkpoint: ModelFolder) -> VllmSettings:
    """Return the settings with which the model is loaded. Raises WeightsError where a processor's memory is too small
    for it."""
    on_cpu = config.device == "cpu"
    value_bytes = VALUE_BYTES.get(config.dtype, 4)
    cache = checkpoint.cache_bytes(options.context, value_bytes) * (config.slots + 1)  # whole blocks, one to spare
    if on_cpu:
        weights = checkpoint.size * value_bytes // (checkpoint.value_bytes or value_bytes)
        check_memory(checkpoint.folder, weights, cache, f"{config.slots} conversations of {options.context} tokens")
    return VllmSettings(
        weights=checkpoint.folder.absolute(),
        name=options.model,
        context=options.context,
        slots=config.slots,
        device=config.device,
        dtype=AS_STORED if config.dtype == "float32" and not on_cpu else config.dtype,
        cache_bytes=cache or None,
        template=options.template,
        tool_parser=options.tool_parser,
        arguments=options.arguments,
    )
