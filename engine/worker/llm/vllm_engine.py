"""vLLM's engine, used as its own server does: AsyncLLM, and the chat completions built on it.

Only this file depends on vLLM's internal names, which change between versions; it supports the version that `make vllm`
installs. vLLM itself renders conversations (templates, pictures, audio) and parses function calls. No HTTP is used, no
usage statistics are sent, and only local paths are read.
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib
import os
from collections.abc import AsyncGenerator, Generator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

from engine.deployment.did_you_mean import nearest
from engine.errors import ConfigError, RequestError, WeightsError
from engine.worker.process import process_group
from engine.worker.remote.refusals import ServerRefusal, cleaned

VERSION = "0.32"
"""Supported version of vLLM."""
NOT_INSTALLED = (
    "llm.vllm needs vLLM in its worker's environment: `make vllm` makes one, and `python: .vllm/bin/python` in "
    "workers[] names it, as a path from the configuration's folder"
)
ENVIRONMENT = {
    "VLLM_NO_USAGE_STATS": "1",
    "VLLM_DO_NOT_TRACK": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
    "TRANSFORMERS_OFFLINE": "1",
    "VLLM_HOST_IP": "127.0.0.1",  # otherwise vLLM looks up the route to a public address
    "VLLM_WORKER_MULTIPROC_METHOD": "spawn",  # a fork would keep the worker's connection to the server open
}
"""Disables usage statistics and downloads, and keeps vLLM's processes on this machine."""
LOG = {"VLLM_LOGGING_LEVEL": "ERROR", "VLLM_LOGGING_STREAM": "ext://sys.stderr"}
"""Default settings of vLLM's log; the environment overrides them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class VllmSettings:
    """Settings for loading a model."""

    weights: Path
    name: str
    context: int
    """Maximum tokens of a conversation."""
    slots: int
    """Maximum concurrent conversations."""
    device: str
    dtype: str
    cache_bytes: int | None = None
    """Bytes for keys and values; None uses the free memory."""
    template: str | None = None
    """Jinja file; None uses the checkpoint's own template."""
    tool_parser: str | None = None
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Additional engine arguments of vLLM."""


class VllmEngine:
    """A model loaded in vLLM's own processes. Call ``aclose`` at the end.

    Loading blocks. Raises ConfigError or WeightsError.
    """

    def __init__(self, settings: VllmSettings) -> None:
        self._settings = settings
        self._count = count()
        os.environ.update(ENVIRONMENT)
        for name, value in LOG.items():
            os.environ.setdefault(name, value)
        version = _version()
        with _named(version):
            arguments = _arguments(settings)
            process_group.lead()
            self._engine = _loaded(arguments, settings)
            try:
                self._chat = _chat(self._engine, settings)
                self._request: Any = _of("entrypoints.openai.chat_completion.protocol", "ChatCompletionRequest")
                self._error_of: Any = _of("entrypoints.serve", "create_error_response")
            except BaseException:
                self._engine.shutdown(timeout=0)
                raise

    async def events(self, body: Mapping[str, Any], name: str) -> AsyncGenerator[str]:
        """Yield the events of a chat completion as JSON. Closing this generator aborts the answer.

        ``name`` is the prefix of vLLM's request id. Raises ServerRefusal or RequestError.
        """
        self._check_tools(body)
        request_id = f"{name}-{next(self._count)}"
        most = min(body["max_tokens"], self._settings.context)
        try:
            asked = self._request.model_validate({**body, "max_tokens": most, "stream": True, "request_id": request_id})
            reply = await self._chat.create_chat_completion(asked)
        except Exception as error:  # noqa: BLE001 - vLLM maps each to a status, including template errors
            raise _refusal(self._error_of(error)) from None
        if not isinstance(reply, AsyncGenerator):
            raise _refusal(reply)
        try:
            async for event in reply:
                yield event.removeprefix("data:").strip()
        finally:
            await reply.aclose()
            await self._engine.abort(
                f"chatcmpl-{request_id}"
            )  # closing alone would leave the abort to the garbage collector

    async def over(self) -> None:
        """Wait until the engine has failed permanently."""
        self._engine._run_output_handler()  # starts reading answers, if no request has done so yet
        await asyncio.wait([self._engine.output_handler])

    @property
    def broken(self) -> bool:
        return self._engine.errored

    async def aclose(self) -> None:
        """Stop the engine's processes."""
        self._engine.output_handler.cancel()  # otherwise it would report their end as an error
        await asyncio.to_thread(self._engine.shutdown, timeout=0)

    def _check_tools(self, body: Mapping[str, Any]) -> None:
        if body.get("tools") and body.get("tool_choice") != "none" and self._settings.tool_parser is None:
            raise RequestError(
                f"{self._settings.name} cannot call functions here: its chat template shows no known format of "
                "function calls. Name one of vLLM's tool parsers as options.tool_parser."
            )


def _version() -> str:
    try:
        vllm: Any = importlib.import_module("vllm")
    except ModuleNotFoundError as error:
        if error.name != "vllm":
            raise
        raise ConfigError(NOT_INSTALLED) from None
    return str(vllm.__version__)


@contextmanager
def _named(version: str) -> Generator[None]:
    """Report an unsupported version if vLLM's names differ from the ones that this file uses."""
    try:
        yield
    except (ImportError, AttributeError, TypeError) as error:
        if version.startswith(f"{VERSION}."):
            raise
        raise ConfigError(
            f"llm.vllm supports only vLLM {VERSION}, but this worker's environment has {version}. "
            "Run `make vllm` to install the supported version."
        ) from error


def _of(module: str, name: str) -> Any:
    return getattr(importlib.import_module(f"vllm.{module}"), name)


def _arguments(settings: VllmSettings) -> Any:
    """Return vLLM's engine arguments. Raises ConfigError."""
    kind: Any = _of("engine.arg_utils", "AsyncEngineArgs")
    platform: Any = _of("platforms", "current_platform")
    _check_device(settings.device, str(platform.device_type))
    known = {one.name for one in dataclasses.fields(kind)}
    for name in settings.arguments:
        if name not in known:
            hint = nearest(name, known, "see vLLM's manual")
            raise ConfigError(f"options.arguments.{name}: vLLM does not have this engine argument ({hint})")
    if platform.is_cpu():
        cpu = {
            "enforce_eager": True,
            "kv_cache_memory_bytes": settings.cache_bytes,
        }  # compilation takes minutes on a CPU
    else:
        cpu = {}
        _check_memory(settings, int(platform.get_device_total_memory()))
    return kind(
        **{
            "model": str(settings.weights),
            "served_model_name": settings.name,
            "max_model_len": settings.context,
            "max_num_seqs": settings.slots,
            "dtype": settings.dtype,
            "enable_prefix_caching": True,
            "disable_log_stats": True,
            **cpu,
            **settings.arguments,
        }
    )


def _check_device(wanted: str, there: str) -> None:
    kind = wanted.partition(":")[0]
    if kind != there:
        step = "give it a device (devices: [0])" if kind == "cpu" else "use the device cpu"
        raise ConfigError(
            f"llm.vllm: the installed vLLM supports {there}, but the worker's device is {kind}. Either {step}, or "
            "rebuild the environment on this machine (`make vllm`)"
        )


def _check_memory(settings: VllmSettings, total: int) -> None:
    """Raise WeightsError before minutes of loading if the weights do not fit on the device."""
    weights = sum(file.stat().st_size for file in settings.weights.glob("*.safetensors"))
    share = float(settings.arguments.get("gpu_memory_utilization", 0.9))
    if weights > total * share and settings.arguments.get("tensor_parallel_size", 1) == 1:
        raise WeightsError(
            f"{settings.weights}: the weights take {weights / 1e9:.1f} GB, but vLLM uses only {share:.0%} of the "
            f"device's {total / 1e9:.1f} GB. Use a smaller or quantized checkpoint, or raise "
            "options.arguments.gpu_memory_utilization."
        )


def _loaded(arguments: Any, settings: VllmSettings) -> Any:
    kind: Any = _of("v1.engine.async_llm", "AsyncLLM")
    try:
        return kind.from_engine_args(arguments)
    except (ValueError, OSError, RuntimeError, NotImplementedError, KeyError) as error:
        said = cleaned(
            str(error).rpartition("Value error, ")[2].partition(" [type=")[0], ()
        )  # extracts the reason from a pydantic error
        raise WeightsError(
            f"{settings.weights}: vLLM cannot load it: {said.rstrip('.')}. See the log for details."
        ) from error


def _chat(engine: Any, settings: VllmSettings) -> Any:
    """Return vLLM's handler of chat completions for the engine. Raises ConfigError."""
    models: Any = _of("entrypoints.openai.models.serving", "OpenAIServingModels")
    path: Any = _of("entrypoints.openai.models.protocol", "BaseModelPath")
    renderer: Any = _of("renderers.online_renderer", "OnlineRenderer")
    serving: Any = _of("entrypoints.openai.chat_completion.serving", "OpenAIServingChat")
    template = _of("renderers.chat_utils", "load_chat_template")(settings.template)
    asked = {
        "request_logger": None,
        "chat_template": template,
        "chat_template_content_format": "auto",
        "enable_auto_tools": settings.tool_parser is not None,
        "tool_parser": settings.tool_parser,
    }
    try:
        return serving(
            engine,
            models(engine, [path(name=settings.name, model_path=str(settings.weights))]),
            "assistant",
            online_renderer=renderer(engine.model_config, engine.renderer, **asked),
            enable_prompt_tokens_details=True,
            **asked,
        )
    except Exception as error:
        if settings.tool_parser is None or isinstance(error, TypeError | AttributeError):
            raise
        known = ", ".join(_of("tool_parsers", "ToolParserManager").list_registered())
        raise ConfigError(
            f"options.tool_parser: vLLM has no {settings.tool_parser!r} that fits this model (known: {known})"
        ) from error


def _refusal(reply: Any) -> ServerRefusal:
    return ServerRefusal(int(reply.error.code), str(reply.error.message), str(reply.error.type))
