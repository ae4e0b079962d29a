"""A thinker that runs a checkpoint's folder with vLLM, on a GPU, for many conversations at once.

vLLM pins package versions that conflict with other stages, so its worker needs its own environment: create it with
`make vllm`, and name its interpreter in ``workers[].python``. There is no server, and nothing leaves the machine.
Computed conversations are cached for their next turn.
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
from engine.worker.llm.options import LocalOptions, check, read_template
from engine.worker.llm.special_tokens import tokens_of_checkpoint
from engine.worker.llm.thinker import thinker_info
from engine.worker.llm.vllm_engine import VllmEngine, VllmSettings
from engine.worker.stage import StageConfig
from engine.worker.streamed import Broken
from engine.worker.text.template_check import check_template

AS_STORED = "auto"
"""vLLM's name for the checkpoint's own dtype."""
TOOL_PARSERS = {
    "<function=": "qwen3_coder",
    "<tool_call>": "hermes",
    "[TOOL_CALLS]": "mistral",
    "<|python_tag|>": "llama3_json",
    '"name": function name': "llama3_json",
}
"""vLLM's tool parser for each text that may occur in a chat template. The first match counts."""
OWN_ARGUMENTS = {
    "model": "the stage's weights",
    "served_model_name": "options.model",
    "max_model_len": "options.context",
    "max_num_seqs": "the stage's max_batch",
    "dtype": "the stage's dtype",
    "trust_remote_code": "Parley, which never runs a checkpoint's own code",
}
"""Engine arguments that Parley sets, and the setting that determines each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmOptions(LocalOptions):
    """The `options` of a stage whose `weights` name a checkpoint's folder in Hugging Face's layout.

    The default of ``model`` is the folder's name. ``context`` is limited to the model's training context. A model that
    sees or hears gets pictures and audio (``images``, ``audio``). The stage's ``max_batch`` is the number of concurrent
    answers. Its ``dtype`` is bfloat16, float16 or float32; on a GPU, the default float32 means the checkpoint's own
    dtype.

    A worker normally sees only its own device. With ``devices: [cuda]`` it sees all, for vLLM's
    ``tensor_parallel_size`` (untested).
    """

    tool_parser: str | None = None
    """vLLM's parser for the model's tool calls. None: chosen by the chat template."""
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further engine arguments of vLLM, by their Python names, like ``{gpu_memory_utilization: 0.5}``."""


class VllmStage(LocalThinker):
    """The stage. vLLM runs in its own processes, which end with this one."""

    @classmethod
    def describe(cls, config: StageConfig) -> StageInfo:
        return thinker_info(config, options_of(config)[0])

    def __init__(self, config: StageConfig) -> None:
        options, checkpoint = options_of(config)
        settings = settings_of(config, options, checkpoint)
        template = checkpoint.template if settings.template is None else read_template(settings.template)
        check_template(template, Path(settings.template or checkpoint.folder))
        self._vllm = VllmEngine(settings)
        super().__init__(config, options, self._vllm, tokens_of_checkpoint(settings.weights, template))

    async def watch(self) -> None:
        """Raise Broken once vLLM's engine has failed, so that the worker is restarted."""
        await self._vllm.over()
        raise Broken(f"vLLM's engine, which runs {self.info.facets.model}, has ended")


STAGE = VllmStage


def options_of(config: StageConfig) -> tuple[VllmOptions, ModelFolder]:
    """Return the options, completed from the checkpoint, and the checkpoint. Raises ConfigError or WeightsError."""
    if config.weights is None:
        raise ConfigError("weights: must name the checkpoint's folder")
    options: VllmOptions = build(VllmOptions, dict(config.options), "options")
    for name in options.arguments:
        if name in OWN_ARGUMENTS:
            raise ConfigError(f"options.arguments.{name}: is set by {OWN_ARGUMENTS[name]}; remove it here")
    if options.template is not None:
        read_template(options.template)
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
    """Return the settings for loading the model. Raises WeightsError if it does not fit into the CPU's memory."""
    on_cpu = config.device == "cpu"
    value_bytes = VALUE_BYTES.get(config.dtype, 4)
    cache = checkpoint.cache_bytes(options.context, value_bytes) * (
        config.slots + 1
    )  # one conversation more: blocks are rounded up
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
