"""Short forms of thinkers stand for options that a stage takes, and say what leaves the machine."""

from pathlib import Path

import pytest

from engine.deployment.llm_urls import FORMS, leaving, thinker_of
from engine.errors import ConfigError
from engine.worker.llm.options import options_of


@pytest.mark.parametrize(
    ("text", "model", "url"),
    [
        ("openai:gpt-5@https://api.example.org/v1", "gpt-5", "https://api.example.org/v1"),
        ("openai:org/model@v2:free@http://box:8000", "org/model@v2:free", "http://box:8000"),
        ("ollama:qwen3.5:4b", "qwen3.5:4b", "http://127.0.0.1:11434/v1"),
        ("ollama:qwen3.5:4b@http://box:11434", "qwen3.5:4b", "http://box:11434"),
        ("ollama:me@home", "me@home", "http://127.0.0.1:11434/v1"),
        ("lmstudio:org/model", "org/model", "http://127.0.0.1:1234/v1"),
        ("llamacpp", "default", "http://127.0.0.1:8080/v1"),
        ("llamacpp:9090", "default", "http://127.0.0.1:9090/v1"),
    ],
)
def test_a_short_form_stands_for_a_stage_and_its_options(text: str, model: str, url: str) -> None:
    thinker = thinker_of(text)
    assert thinker.use == "llm.openai"
    assert thinker.options == {"url": url, "model": model}
    assert options_of(thinker.options).url == url


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("olama:qwen", r"no 'olama:qwen' \(did you mean ollama:MODEL\?\)"),
        ("lm-studio:m", "did you mean lmstudio:MODEL"),
        ("llama.cpp", r"did you mean llamacpp\[:PORT\]"),
        ("xyz", "known: openai:MODEL@URL, ollama:MODEL"),
        ("", "known: "),
        ("ollama", "is not complete; write ollama:MODEL"),
        ("ollama:", "is not complete"),
        ("openai:gpt-5", "is not complete; write openai:MODEL@URL"),
        ("openai:@https://api.example.org", "is not complete"),
        ("gguf", "is not complete; write gguf:PATH"),
        ("gguf:", "is not complete"),
        ("vllm", "is not complete; write vllm:PATH"),
        ("vllm:", "is not complete"),
        ("guff:m", "did you mean gguf:PATH"),
        ("llamacpp:abc", "'abc' is not a port"),
        ("llamacpp:70000", "is not a port"),
        ("llamacpp:0", "is not a port"),
    ],
)
def test_what_is_no_short_form_is_told_with_the_nearest(text: str, hint: str) -> None:
    with pytest.raises(ConfigError, match=hint):
        thinker_of(text)


def test_a_file_is_meant_by_its_path_from_any_folder_or_by_its_name_in_the_catalogue(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    meant = {
        "gguf:/models/a b.gguf": "/models/a b.gguf",
        "gguf:q4.gguf": str(tmp_path / "q4.gguf"),
        "gguf:models/q4": str(tmp_path / "models/q4"),
        "gguf:~/q4.gguf": str(tmp_path / "home/q4.gguf"),
        "gguf:qwen3.5-4b": "qwen3.5-4b",
    }
    for text, weights in meant.items():
        thinker = thinker_of(text)
        assert (thinker.use, thinker.options, thinker.weights) == ("llm.llamacpp", {}, weights)
        assert thinker.max_batch == 4
        assert not thinker.has_key


def test_a_folder_is_meant_by_its_path_from_any_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for text, weights in {"vllm:/models/m": "/models/m", "vllm:m": str(tmp_path / "m")}.items():
        thinker = thinker_of(text)
        assert (thinker.use, thinker.options, thinker.weights) == ("llm.vllm", {}, weights)
        assert thinker.max_batch == 16
        assert not thinker.has_key


def test_what_leaves_the_machine_is_said_in_a_sentence() -> None:
    url = "https://api.example.org/v1"
    assert leaving(url) == "Conversations leave this machine: api.example.org gets their text."
    assert leaving(url, images=True).endswith("gets their text and pictures.")
    assert leaving("http://box:11434", images=True, audio=True).endswith(
        "box:11434 gets their text, pictures and sound."
    )


@pytest.mark.parametrize("form", [name for name in FORMS if name not in ("openai", "gguf", "vllm")])
def test_nothing_leaves_the_machine_by_a_local_form(form: str) -> None:
    assert leaving(str(thinker_of(form + ("" if form == "llamacpp" else ":m")).options["url"])) == ""
