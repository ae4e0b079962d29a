"""A package `vllm` with the names, signatures and events of vLLM 0.32 as far as `llm.vllm` knows them, and no model.

It answers with the words that were asked. The real one is asked the same through our sockets in
``tests/contracts/test_language_models.py`` (`make conformance`, behind `make vllm`).
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

SCRIPTED = """
import asyncio
import dataclasses
import json
import os

ASKED = []
ABORTED = []
ENVIRONMENT = dict(os.environ)  # as it was when the library was imported


class Platform:
    device_type = "cpu"

    def is_cpu(self):
        return self.device_type == "cpu"

    def get_device_total_memory(self, device_id=0):
        return 1000


current_platform = Platform()


@dataclasses.dataclass
class AsyncEngineArgs:
    model: str = ""
    served_model_name: str = ""
    max_model_len: int = 0
    max_num_seqs: int = 0
    dtype: str = "auto"
    enable_prefix_caching: bool = False
    disable_log_stats: bool = False
    enforce_eager: bool = False
    kv_cache_memory_bytes: int = None
    gpu_memory_utilization: float = 0.9
    tensor_parallel_size: int = 1
    quantization: str = None


class AsyncLLM:
    made = []

    def __init__(self, arguments):
        if arguments.quantization:
            said = f"Unknown quantization: {arguments.quantization}. [type=value_error, input_value=1]"
            raise ValueError(f"1 validation error for ModelConfig\\n  Value error, {said}")
        self.arguments, self.model_config, self.renderer = arguments, "config", "renderer"
        self.errored, self.closed = False, False
        self._dead = asyncio.Event()
        self.output_handler = None
        try:
            asyncio.get_running_loop()
            self._run_output_handler()
        except RuntimeError:
            pass
        AsyncLLM.made.append(self)

    @classmethod
    def from_engine_args(cls, arguments):
        return cls(arguments)

    def _run_output_handler(self):
        if self.output_handler is None:
            self.output_handler = asyncio.create_task(self._dead.wait())

    def die(self):
        self.errored = True
        self._dead.set()

    async def abort(self, request_id, internal=False):
        ABORTED.append(request_id)

    def shutdown(self, timeout=None):
        self.closed = True
        if self.output_handler is not None:
            self.output_handler.get_loop().call_soon_threadsafe(self.output_handler.cancel)


class ToolParserManager:
    @staticmethod
    def list_registered():
        return ["hermes", "mistral"]


class BaseModelPath:
    def __init__(self, name, model_path):
        self.name, self.model_path = name, model_path


class OpenAIServingModels:
    def __init__(self, engine_client, base_model_paths, *, lora_modules=None):
        pass


class OnlineRenderer:
    def __init__(
        self, model_config, renderer, *, request_logger, chat_template, chat_template_content_format,
        trust_request_chat_template=False, enable_auto_tools=False, tool_parser=None, reasoning_parser=None,
    ):
        if tool_parser not in (None, *ToolParserManager.list_registered()):
            raise KeyError(f"invalid tool parser: {tool_parser}")


def load_chat_template(chat_template):
    return chat_template


class ChatCompletionRequest:
    @classmethod
    def model_validate(cls, body):
        request = cls()
        request.body = body
        return request


class ClientError(Exception):
    status = 400


class Object:
    def __init__(self, **fields):
        self.__dict__.update(fields)


def create_error_response(error):
    code = getattr(error, "status", 400 if isinstance(error, ValueError) else 500)
    return Object(error=Object(message=str(error), type="BadRequestError", code=code))


class OpenAIServingChat:
    def __init__(
        self, engine_client, models, response_role, *, online_renderer, request_logger, chat_template,
        chat_template_content_format, enable_auto_tools=False, tool_parser=None, enable_prompt_tokens_details=False,
    ):
        self.engine = engine_client

    async def create_chat_completion(self, request, raw_request=None):
        body = request.body
        ASKED.append(body)
        last = body["messages"][-1]
        if len(last["content"]) > 1000:
            raise ClientError("This model's maximum context length is 256 tokens. Please reduce the length.")
        if last["content"].startswith("{"):
            raise ValueError(f"the template does not like {last['content']}")
        if last["content"] == "refused":
            return create_error_response(ClientError("not like this"))
        return self.stream(body, last)

    async def stream(self, body, last):
        words = ["You ", "said: ", *(word + " " for word in last["content"].split())]
        if last["role"] == "assistant":  # to be gone on with
            words = ["and ", "so ", "on."]
        yield event(delta={"role": "assistant", "content": ""})
        for count, word in enumerate(words[: body["max_tokens"]]):
            yield event(delta={"content": word})
            await asyncio.sleep(0)
            if last["content"] == "die" and count == 1:
                self.engine.die()
                yield event_of({"error": {"message": "EngineCore encountered an issue.", "type": "x", "code": 500}})
                yield "data: [DONE]\\n\\n"
                return
            while last["content"] == "endless":
                yield event(delta={"content": "on "})
                await asyncio.sleep(0)
        yield event(delta={"content": ""}, finish_reason="stop")
        usage = {"prompt_tokens": 7, "completion_tokens": len(words), "prompt_tokens_details": {"cached_tokens": 3}}
        yield event_of({"object": "chat.completion.chunk", "choices": [], "usage": usage})
        yield "data: [DONE]\\n\\n"


def event(**choice):
    return event_of({"object": "chat.completion.chunk", "choices": [{"index": 0, "finish_reason": None, **choice}]})


def event_of(tree):
    return f"data: {json.dumps(tree)}\\n\\n"
"""

MODULES = {
    "__init__": '__version__ = "0.32.0"',
    "engine.arg_utils": "from vllm.scripted import AsyncEngineArgs",
    "platforms": "from vllm.scripted import current_platform",
    "tool_parsers": "from vllm.scripted import ToolParserManager",
    "v1.engine.async_llm": "from vllm.scripted import AsyncLLM",
    "entrypoints.serve": "from vllm.scripted import create_error_response",
    "entrypoints.openai.models.serving": "from vllm.scripted import OpenAIServingModels",
    "entrypoints.openai.models.protocol": "from vllm.scripted import BaseModelPath",
    "entrypoints.openai.chat_completion.serving": "from vllm.scripted import OpenAIServingChat",
    "entrypoints.openai.chat_completion.protocol": "from vllm.scripted import ChatCompletionRequest",
    "renderers.online_renderer": "from vllm.scripted import OnlineRenderer",
    "renderers.chat_utils": "from vllm.scripted import load_chat_template",
}


def write_vllm(site: Path) -> None:
    """The package, in a folder that is searched for packages."""
    for name, source in {**MODULES, "scripted": SCRIPTED}.items():
        file = (site / "vllm" / name.replace(".", "/")).with_suffix(".py")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(source + "\n")


def write_checkpoint(folder: Path, template: str = "{{ messages }}", **config: Any) -> Path:
    """A folder that looks like a checkpoint's; its weights are 100 bytes of nothing."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"max_position_embeddings": 2048, **config}))
    (folder / "model.safetensors").write_bytes(bytes(100))
    if template:
        (folder / "chat_template.jinja").write_text(template)
    return folder
