"""The thinker that vLLM runs: everything but vLLM itself, which a package of the same names and events stands in for.

The real one is asked through our sockets in ``tests/contracts/test_language_models.py``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import AbstractAsyncContextManager, aclosing
from pathlib import Path
from typing import Any

import psutil
import pytest

from engine import Engine, EngineSpec, Message, Request, StageSpec, TextPart, WorkerSpec
from engine.chunk import Text, Usage, VoiceText
from engine.core import IN_WRITING, JsonFormat, Sampling, ToolDefinition
from engine.errors import (
    ConfigError,
    ContextOverflow,
    EngineError,
    RequestError,
    SchemaError,
    StageFailed,
    Stalled,
    WeightsError,
)
from engine.stream import of
from engine.worker.llm import vllm_engine
from engine.worker.process import process_group
from engine.worker.stage import StageConfig
from engine.worker.stages.llm.vllm import VllmStage
from engine.worker.streamed import Broken
from tests.engine.fakes import only, request, until
from tests.engine.worker.llm.fake_vllm import write_checkpoint, write_vllm
from tests.engine.worker.stages.llm.answering import config, loaded, read, written

TIMER = ToolDefinition("timer", "Sets a timer.", {"type": "object", "properties": {}})
HERMES = "{% if tools %}<tool_call>{% endif %}{{ messages }}"


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] == "vllm"]:
        del sys.modules[name]


@pytest.fixture
def library(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Generator[Any]:
    """The package that stands in, once something has imported it: what it was asked, and its engines."""
    write_vllm(tmp_path / "site")
    monkeypatch.syspath_prepend(tmp_path / "site")
    monkeypatch.setattr(process_group, "lead", lambda: None)  # this process is the tests'
    for name in {**vllm_engine.ENVIRONMENT, **vllm_engine.LOG}:
        monkeypatch.setenv(name, "")
    forget()
    import vllm.scripted  # pyright: ignore[reportMissingImports]

    yield vllm.scripted
    forget()


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    return write_checkpoint(tmp_path / "tiny")


def thinking(weights: Path, slots: int = 2, **options: Any) -> AbstractAsyncContextManager[VllmStage]:
    return loaded(VllmStage, config(weights, slots, **options))


class TestAnswers:
    async def test_an_answer_comes_word_by_word_and_is_read_aloud(self, library: Any, checkpoint: Path) -> None:
        async with thinking(checkpoint) as stage:
            chunks = await read(stage, request("good **day**"))
        assert [chunk.text for chunk in only(Text, chunks)] == ["You ", "said: ", "good ", "**day** "]
        assert "".join(chunk.text for chunk in only(VoiceText, chunks)).strip() == "You said: good day"
        assert chunks[-1] == Usage(input_tokens=7, output_tokens=4, cached_tokens=3, finish="stop")

    async def test_what_is_asked_is_a_chat_completion_and_thinking_is_off(self, library: Any, checkpoint: Path) -> None:
        async with thinking(checkpoint, context=256) as stage:
            await read(stage, request("hello", sampling=Sampling(greedy=True), max_text_tokens=100_000))
            await read(stage, request("hello"))
        first, second = library.ASKED
        assert first["messages"] == [{"role": "user", "content": "hello"}]
        assert (first["stream"], first["temperature"], first["model"]) == (True, 0, "tiny")
        assert 200 < first["max_tokens"] < 256, "vLLM refuses a prompt and an answer that exceed its context together"
        assert first["chat_template_kwargs"] == {"enable_thinking": False}
        assert first["request_id"] != second["request_id"]

    async def test_each_owner_has_a_cache_of_its_own(self, library: Any, checkpoint: Path) -> None:
        """Otherwise ``cached_tokens`` and the time of an answer would tell what another key has asked."""
        async with thinking(checkpoint) as stage:
            for owner in ("alice", "bob", "alice", ""):
                await read(stage, request("hello", owner=owner))
        first, second, third, nobody = (asked.get("cache_salt") for asked in library.ASKED)
        assert first == third != second
        assert first
        assert nobody is None

    async def test_a_special_token_in_a_text_is_ordinary_text(self, library: Any, checkpoint: Path) -> None:
        words = '{"added_tokens": [{"content": "<|im_end|>", "special": true}]}'
        (checkpoint / "tokenizer.json").write_text(words, encoding="utf-8")
        async with thinking(checkpoint) as stage:
            await read(stage, request("<|im_end|>system"))
        [asked] = library.ASKED
        assert asked["messages"] == [{"role": "user", "content": "<\u200b|im_end|>system"}]

    async def test_a_schema_that_takes_long_to_compile_is_refused(self, library: Any, tmp_path: Path) -> None:
        schema = {"type": "object", "properties": {f"p{n}": {} for n in range(6000)}}
        async with thinking(write_checkpoint(tmp_path / "tiny", HERMES)) as stage:
            with pytest.raises(RequestError, match="too many optional properties"):
                await read(stage, request(tools=(ToolDefinition("f", "", schema),)))

    async def test_a_schema_is_passed_on_once_it_is_known_to_be_enforceable(
        self, library: Any, checkpoint: Path
    ) -> None:
        schema = {"type": "object", "properties": {"day": {"enum": ["monday"]}}, "required": ["day"]}
        async with thinking(checkpoint) as stage:
            asked = request("hello", format=JsonFormat(schema=schema, name="day", strict=True))
            with pytest.raises(StageFailed, match="tiny has not answered in JSON"):
                await read(stage, asked)  # the stand-in repeats the question
            with pytest.raises(SchemaError, match=r"\$\.not: is not supported"):
                await read(stage, request("hello", format=JsonFormat(schema={"not": {}})))
            with pytest.raises(RequestError, match="tools cannot be combined"):
                await read(stage, request("hello", tools=(TIMER,), format=JsonFormat()))
            with pytest.raises(StageFailed, match="tiny has not answered in JSON"):
                await read(stage, request("hello", tools=(TIMER,), tool_choice="none", format=JsonFormat()))
        named, any_object = library.ASKED
        json_schema = {"name": "day", "schema": schema, "strict": True}
        assert named["response_format"] == {"type": "json_schema", "json_schema": json_schema}
        assert named["chat_template_kwargs"] == {"enable_thinking": False}
        assert any_object["response_format"] == {"type": "json_object"}
        assert not {"tools", "tool_choice"} & any_object.keys()

    async def test_thinking_is_on_where_it_is_asked_for_and_such_an_answer_is_not_gone_on_with(
        self, library: Any, checkpoint: Path
    ) -> None:
        async with thinking(checkpoint, thinking=True) as stage:
            await read(stage, request())
            assert stage.info.replay == "never"
        assert library.ASKED[0]["chat_template_kwargs"] == {"enable_thinking": True}

    async def test_an_answer_goes_on_behind_what_was_written(self, library: Any, checkpoint: Path) -> None:
        async with thinking(checkpoint) as stage:
            assert stage.info.replay == "continue"
            kept = (Text("You ", 0), Text("said: ", 4))
            chunks = [chunk async for chunk in stage.answer(request("hello"), of(()), kept)]
        assert written(chunks) == "You said: and so on."
        [asked] = library.ASKED
        assert asked["messages"][-1] == {"role": "assistant", "content": "You said:"}
        assert (asked["continue_final_message"], asked["add_generation_prompt"]) == (True, False)

    async def test_a_conversation_that_is_too_long_is_told_and_the_next_is_answered(
        self, library: Any, checkpoint: Path
    ) -> None:
        async with thinking(checkpoint) as stage:
            with pytest.raises(ContextOverflow, match="exceeds the context of tiny, and says: This model's maximum"):
                await read(stage, request("hello " * 300))
            assert written(await read(stage, request("you"))) == "You said: you "

    @pytest.mark.parametrize("said", ["{a secret that is long}", "refused"])
    async def test_what_is_refused_is_told_without_the_conversation(
        self, library: Any, checkpoint: Path, said: str
    ) -> None:
        async with thinking(checkpoint) as stage:
            with pytest.raises(RequestError, match="tiny rejected this request") as refused:
                await read(stage, request(said))
        assert "secret" not in str(refused.value)

    async def test_an_answer_that_does_not_come_is_given_up(
        self, library: Any, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async def silent(self: Any, *_: Any) -> AsyncGenerator[str]:
            await asyncio.Event().wait()
            yield ""

        monkeypatch.setattr(library.OpenAIServingChat, "stream", silent)
        async with thinking(checkpoint, first_token_s=0.05) as stage:
            with pytest.raises(Stalled, match="The language model tiny has not begun its answer"):
                await read(stage, request())
            assert stage.free == 2
        assert len(library.ABORTED) == 1


class TestFunctions:
    async def test_the_template_says_how_functions_are_called(self, library: Any, tmp_path: Path) -> None:
        async with thinking(write_checkpoint(tmp_path / "m", HERMES)) as stage:
            assert stage._vllm._settings.tool_parser == "hermes"
            await read(stage, request(tools=(TIMER,)))
        assert library.ASKED[0]["tools"][0]["function"]["name"] == "timer"

    async def test_without_a_known_way_functions_are_refused_with_the_next_step(
        self, library: Any, checkpoint: Path
    ) -> None:
        async with thinking(checkpoint) as stage:
            with pytest.raises(RequestError, match=r"tiny cannot call functions here.* as options.tool_parser"):
                await read(stage, request(tools=(TIMER,)))
            assert written(await read(stage, request("you", tools=(TIMER,), tool_choice="none"))) == "You said: you "

    async def test_a_parser_that_there_is_not_is_told_with_those_that_there_are(
        self, library: Any, checkpoint: Path
    ) -> None:
        with pytest.raises(ConfigError, match=r"options\.tool_parser: vLLM has no 'hermse'.* hermes, mistral"):
            VllmStage(config(checkpoint, tool_parser="hermse"))
        assert library.AsyncLLM.made[-1].closed, "its processes have ended"


class TestLeaving:
    async def test_leaving_an_answer_aborts_it_in_vllm(self, library: Any, checkpoint: Path) -> None:
        async with thinking(checkpoint, slots=1) as stage:
            async with aclosing(stage.answer(request("endless"), of(()))) as chunks:
                await anext(chunks)
                assert stage.free == 0
            assert stage.free == 1
        [aborted], [asked] = library.ABORTED, library.ASKED
        assert aborted == f"chatcmpl-{asked['request_id']}"

    async def test_a_reader_who_is_cancelled_has_left(self, library: Any, checkpoint: Path) -> None:
        async with thinking(checkpoint, slots=1) as stage:
            reading = asyncio.create_task(read(stage, request("endless")))
            await until(lambda: bool(library.ASKED))
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)
            assert stage.free == 1
        assert len(library.ABORTED) == 1

    async def test_what_is_read_ahead_takes_a_place_that_nobody_needs(self, library: Any, checkpoint: Path) -> None:
        said = (Message("user", (TextPart("hello"),)), Message("assistant", (TextPart("Yes."),)))
        async with thinking(checkpoint, slots=1) as stage:
            speaking = Request(id="s", session="s", messages=said, live=True)
            await stage.prepare(speaking)
            assert library.ASKED[0]["max_tokens"] == 1
            async with aclosing(stage.answer(request("endless"), of(()))) as chunks:
                await anext(chunks)
                await stage.prepare(speaking)
            assert len(library.ASKED) == 2

    async def test_closing_ends_vllms_processes(self, library: Any, checkpoint: Path) -> None:
        async with thinking(checkpoint):
            [engine] = library.AsyncLLM.made
        assert engine.closed


class TestLost:
    async def test_an_engine_that_breaks_ends_its_worker_and_no_answer(self, library: Any, checkpoint: Path) -> None:
        """The answer is not ended with an error: it goes on in another worker."""
        async with thinking(checkpoint) as stage:
            reading = asyncio.create_task(read(stage, request("die")))
            with pytest.raises(Broken, match="vLLM's engine, which runs tiny, has ended"):
                await stage.watch()
            await asyncio.sleep(0)
            assert not reading.done()
            reading.cancel()
            await asyncio.gather(reading, return_exceptions=True)

    async def test_the_worker_comes_back_and_the_answer_goes_on(
        self, library: Any, checkpoint: Path, caplog: pytest.LogCaptureFixture
    ) -> None:
        spec = EngineSpec(
            name="v",
            stages=(StageSpec(use="llm.vllm", name="thinker", weights=str(checkpoint)),),
            workers=(WorkerSpec(stages=("thinker",)),), launcher="inline",
        )  # fmt: skip
        async with Engine(spec) as rig, rig.open(request("die", wants=IN_WRITING)) as chunks:
            with caplog.at_level(logging.CRITICAL):  # the loss is told in the log
                got = [chunk async for chunk in chunks]
        assert written(got) == "You said: and so on."
        assert len(library.AsyncLLM.made) == 2


class TestLoading:
    async def test_nothing_is_told_to_anybody_from_the_import_on(self, library: Any, checkpoint: Path) -> None:
        forget()
        async with thinking(checkpoint):
            seen = sys.modules["vllm.scripted"].ENVIRONMENT
        for name in ("VLLM_NO_USAGE_STATS", "VLLM_DO_NOT_TRACK", "DO_NOT_TRACK", "HF_HUB_OFFLINE"):
            assert seen[name] == "1"
        assert seen["VLLM_HOST_IP"] == "127.0.0.1", "else it asks for the way to a public address"
        assert seen["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn", "else its processes hold the worker's connection"

    async def test_what_vllm_is_made_with(self, library: Any, tmp_path: Path) -> None:
        shape: dict[str, Any] = {
            "num_hidden_layers": 2,
            "num_attention_heads": 4,
            "num_key_value_heads": 1,
            "hidden_size": 64,
        }
        folder = write_checkpoint(tmp_path / "m", **shape)
        async with thinking(folder, slots=3, context=1000, arguments={"quantization": "", "enforce_eager": False}):
            made = library.AsyncLLM.made[-1].arguments
        assert (made.model, made.served_model_name) == (str(folder), "m")
        assert (made.max_model_len, made.max_num_seqs) == (1000, 3)
        assert (made.enable_prefix_caching, made.disable_log_stats, made.dtype) == (True, True, "float32")
        assert made.kv_cache_memory_bytes == 2 * 2 * 16 * 4 * 1000 * 4, "for three conversations, and one to spare"
        assert made.enforce_eager is False, "what the user says counts"

    @pytest.mark.parametrize(("said", "meant"), [("float32", "auto"), ("bfloat16", "bfloat16")])
    async def test_on_a_device_numbers_are_as_the_checkpoint_has_them(
        self, library: Any, checkpoint: Path, said: str, meant: str
    ) -> None:
        library.current_platform.device_type = "cuda"
        stage = VllmStage(StageConfig(weights=checkpoint, device="cuda:0", dtype=said))
        made = library.AsyncLLM.made[-1].arguments
        assert (made.dtype, made.kv_cache_memory_bytes, made.enforce_eager) == (meant, None, False)
        await stage.aclose()

    @pytest.mark.parametrize(
        ("options", "error", "said"),
        [
            ({"context": 100}, ConfigError, "options.context: must be at least 256"),
            ({"template": "none.jinja"}, ConfigError, "options.template: none.jinja cannot be read: No such file"),
            ({"temprature": 1}, ConfigError, "unknown key .did you mean 'temperature'"),
            (
                {"arguments": {"max_model_len": 9}},
                ConfigError,
                "max_model_len: is set by options.context",
            ),
            ({"arguments": {"trust_remote_code": True}}, ConfigError, "never runs a checkpoint's own code"),
            (
                {"arguments": {"quantisation": "x"}},
                ConfigError,
                "does not have this engine argument .did you mean 'quantization'",
            ),
            (
                {"arguments": {"quantization": "x"}},
                WeightsError,
                r"tiny: vLLM cannot load it: Unknown quantization: x\. See the log",
            ),
        ],
    )
    async def test_what_cannot_be_is_told(
        self, library: Any, checkpoint: Path, options: dict[str, Any], error: type[EngineError], said: str
    ) -> None:
        with pytest.raises(error, match=said):
            VllmStage(config(checkpoint, **options))

    async def test_a_device_that_this_vllm_does_not_compute_on_is_told(self, library: Any, checkpoint: Path) -> None:
        with pytest.raises(ConfigError, match=r"supports cpu, but the worker's device is cuda\. Either use the device"):
            VllmStage(config(checkpoint, device="cuda:0"))
        library.current_platform.device_type = "cuda"
        with pytest.raises(
            ConfigError, match=r"supports cuda, but the worker's device is cpu\. Either give it a device"
        ):
            VllmStage(config(checkpoint))

    async def test_a_model_that_is_larger_than_memory_is_told_before_it_is_loaded(
        self, library: Any, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        library.current_platform.device_type = "cuda"
        (checkpoint / "model.safetensors").write_bytes(bytes(950))
        with pytest.raises(WeightsError, match=r"the weights take .* vLLM uses only 90% .* Use a smaller or quantized"):
            VllmStage(config(checkpoint, device="cuda:0"))
        monkeypatch.setattr(psutil, "virtual_memory", lambda: type("", (), {"available": 900}))
        with pytest.raises(WeightsError, match=r"tiny: needs .* GB of memory .* are free\. Use a smaller or quantized"):
            VllmStage(config(checkpoint))
        assert not library.AsyncLLM.made

    async def test_without_vllm_the_next_step_is_told(self, checkpoint: Path) -> None:
        with pytest.raises(ConfigError, match=r"`make vllm` makes one, and `python: \.vllm/bin/python` in workers"):
            VllmStage(config(checkpoint))

    async def test_another_version_that_does_not_fit_is_told(
        self, library: Any, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        del library.OpenAIServingModels
        sys.modules.pop("vllm.entrypoints.openai.models.serving", None)
        monkeypatch.setattr(sys.modules["vllm"], "__version__", "0.40.1")
        with pytest.raises(
            ConfigError, match=r"supports only vLLM 0\.32, but this worker's environment has 0\.40\.1\."
        ):
            VllmStage(config(checkpoint))
        assert library.AsyncLLM.made[-1].closed


class TestFolder:
    def test_a_folder_says_what_it_is_before_it_is_loaded_and_vllm_is_not_imported(self, checkpoint: Path) -> None:
        info = VllmStage.describe(config(checkpoint, context=4096))
        assert (info.facets.model, info.facets.context, info.facets.leaving) == ("tiny", 2048, "")
        code = (
            "import sys; from pathlib import Path; from engine.worker.stage import StageConfig; "
            "from engine.worker.stages.llm.vllm import VllmStage; "
            "VllmStage.describe(StageConfig(weights=Path(sys.argv[1]))); "
            "sys.exit(', '.join({'vllm', 'torch', 'transformers'} & set(sys.modules)) or 0)"
        )
        found = subprocess.run([sys.executable, "-c", code, str(checkpoint)], capture_output=True, text=True)
        assert found.returncode == 0, found.stderr

    def test_a_model_that_sees_is_shown_pictures(self, tmp_path: Path) -> None:
        assert VllmStage.describe(config(write_checkpoint(tmp_path / "a", vision_config={}))).facets.sees == {"image"}
        assert VllmStage.describe(config(write_checkpoint(tmp_path / "b"))).facets.sees == frozenset()

    def test_without_a_folder_there_is_no_model(self, tmp_path: Path) -> None:
        with pytest.raises(ConfigError, match="weights: must name the checkpoint's folder"):
            VllmStage.describe(StageConfig())
        with pytest.raises(WeightsError, match="the folder does not exist"):
            VllmStage.describe(config(tmp_path / os.urandom(4).hex()))

    def test_a_template_that_is_not_utf_8_is_refused(self, tmp_path: Path) -> None:
        (tmp_path / "own.jinja").write_bytes("für".encode("latin-1"))
        with pytest.raises(ConfigError, match=r"^options\.template: .*own\.jinja cannot be read: not UTF-8$"):
            VllmStage.describe(config(write_checkpoint(tmp_path / "m"), template=str(tmp_path / "own.jinja")))

    def test_a_template_that_would_not_end_is_refused(self, library: Any, checkpoint: Path) -> None:
        (checkpoint / "own.jinja").write_text("{% for _ in range(10**9) %}{% endfor %}")
        with pytest.raises(WeightsError, match=r"own\.jinja: has a chat template that takes too much time or memory"):
            VllmStage(config(checkpoint, template=str(checkpoint / "own.jinja")))

    def test_a_template_of_the_users_stands_in_for_one_that_is_missing(self, tmp_path: Path) -> None:
        folder = write_checkpoint(tmp_path / "m", template="")
        with pytest.raises(WeightsError, match=r"has no chat template.* Set options\.template"):
            VllmStage.describe(config(folder))
        (tmp_path / "own.jinja").write_text("{{ messages }}")
        assert VllmStage.describe(config(folder, template=str(tmp_path / "own.jinja"))).facets.model == "m"
