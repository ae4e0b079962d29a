"""A configuration means one thing, or says where it does not."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine import ChunkSpec, ConfigError, load_config, parse_config
from engine.deployment.registry import load, names

GOOD = "model: script\nworkers:\n  - {stages: [a, b], replicas: 2}\n"
CONFIGS = Path(__file__).parents[3] / "configs"


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_shipped_configuration_loads(path: Path) -> None:
    assert load_config(path).workers


def test_what_is_written_is_what_is_meant() -> None:
    spec = parse_config(GOOD + "chunks: {first: 2, growth: 2}\nserver: {anything: [1]}\n")
    assert spec.workers[0].stages == ("a", "b")
    assert spec.workers[0].replicas == 2
    assert spec.chunks == ChunkSpec(first=2, growth=2.0)
    assert spec.server == {"anything": [1]}


BAD = {
    "": "the configuration: must be a mapping",
    "[]": "the configuration: must be a mapping",
    "name: x": "stages: write either stages, or a model (which stands for all stages of its family); the config",
    GOOD + "stages: [{use: script.ears}]": "stages: write either stages, or a model",
    "model: [": "not valid YAML: line 1: expected the node content, but found '<stream end>'",
    "model: 2024-99-99": "not valid YAML",
    "[" * 500: "not valid YAML",
    "stages: [{use: script.ears}]\noptions: {a: 1}": "options: belongs to a stage; write it as stages[…].options",
    "stages: [{name: x}]": "stages[0].use: missing",
    "stages: [{use: ''}]": "stages[0].use: must name a stage",
    GOOD + "modle: x": "modle: unknown key (did you mean 'model'?)",
    GOOD + "1: x": "1: unknown key",
    "model: script\nworkers:\n  - {stages: [a], replica: 2}": "workers[0].replica: unknown key (did you mean 'r",
    GOOD + "chunks: {fist: 1}": "chunks.fist: unknown key (did you mean 'first'?)",
    GOOD + "balance: least_queues": "balance: 'least_queues' is not one of least_queue, round_robin, random (did you",
    GOOD + "queue: yes": "queue: must be int, not True",
    GOOD + "queue: 1.5": "queue: must be int",
    GOOD + "queue: 0": "queue: must be a positive, finite number",
    GOOD + "stall_s: .nan": "stall_s: must be a positive, finite number",
    GOOD + "stall_s: '3'": "stall_s: must be float, not '3'",
    GOOD + "weights: [x]": "weights: must be str or nothing",
    GOOD + "chunks: {growth: .nan}": "chunks.growth",
    GOOD + "chunks: {growth: .inf}": "chunks.growth",
    GOOD + "chunks: {growth: 0.5}": "chunks.growth",
    GOOD + "chunks: {first: 26}": "chunks.first",
    GOOD + "chunks: 3": "chunks: must be a mapping",
    "model: script\nworkers: {stages: [a]}": "workers: must be a list",
    "model: script\nworkers:\n  - {stages: a}": "workers[0].stages: must be a list, not 'a'",
    "model: script\nworkers:\n  - {stages: [1]}": "workers[0].stages[0]: must be str",
    "model: script\nworkers:\n  - {stages: []}": "workers[0].stages: must name at least one",
    "model: script\nworkers:\n  - {stages: [a], devices: []}": "workers[0].devices: must name at least one",
    "model: script\nworkers:\n  - {stages: [a], replicas: 0}": "workers[0].replicas: must be at least 1",
    "stages: [{use: script.ears, max_batch: 0}]": "stages[0].max_batch: must be at least 1",
    GOOD + "stall_s: 0": "stall_s: must be a positive, finite number",
    GOOD + "stall_s: -1": "stall_s: must be a positive, finite number",
    GOOD + "stall_s: .inf": "stall_s: must be a positive, finite number",
    "model: script\nworkers:\n  - {stages: [a]}\n  - {stages: [a]}": "workers[1].stages: workers[0] already hosts a",
}


@pytest.mark.seed("A2.9", "A4.6")
@pytest.mark.parametrize(("text", "message"), BAD.items(), ids=[message[:40] for message in BAD.values()])
def test_a_mistake_is_named_with_its_place(text: str, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_config(text)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_a_spec_or_a_config_error(text: str) -> None:
    try:
        parse_config(text)
    except ConfigError:
        return
    pytest.fail("no text of this kind describes a deployment")


def test_an_unreadable_file_is_a_config_error(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff\xfe\x00")
    for name in ("missing", "binary", "."):
        with pytest.raises(ConfigError, match="cannot read"):
            load_config(tmp_path / name)


@pytest.mark.seed("A4.6")
@given(st.integers(1, 40), st.floats(1, 1e300), st.integers(0, 60))
def test_chunks_grow_from_the_first_to_the_steady_size(first: int, growth: float, more: int) -> None:
    spec = ChunkSpec(first=first, growth=growth, steady=first + more)
    sizes = [spec.size(n) for n in range(200)]
    assert sizes[0] == first
    assert sizes == sorted(sizes)
    assert all(b <= max(a + 1, growth * a + 1) for a, b in itertools.pairwise(sizes))
    assert max(sizes) <= spec.steady
    if growth >= 1.5:
        assert sizes[-1] == spec.steady


def test_a_name_selects_a_file() -> None:
    assert {"inline", "local"} <= set(names("engine.control.launchers"))
    assert load("engine.control.launchers", "inline", "LAUNCHER").__module__ == "engine.control.launchers.inline"
    with pytest.raises(ConfigError, match="did you mean 'inline'"):
        load("engine.control.launchers", "inlin", "LAUNCHER")
    with pytest.raises(ConfigError, match="exports no Nothing"):
        load("engine.control.launchers", "inline", "Nothing")
    assert names("engine.nowhere") == []


def test_a_package_that_is_missing_is_said_to_be_an_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.delitem(sys.modules, "engine.control.launchers.ray", raising=False)
    with pytest.raises(ConfigError, match=r"ray.*; the README says which extra"):
        load("engine.control.launchers", "ray", "LAUNCHER")


def test_a_stage_has_a_name_a_source_and_settings_of_its_own(tmp_path: Path) -> None:
    text = """
    stages:
      - {use: nano.ears, weights: here, options: {a: 1}}
      - {use: ./mine.py:Thinker, from: ears}
      - {use: sub/voice.py, dtype: bfloat16, name: mouth}
    """
    file = tmp_path / "mine.yaml"
    file.write_text(text)
    ears, thinker, voice = load_config(file).stages
    assert (ears.name, ears.weights, ears.options, ears.from_) == ("ears", "here", {"a": 1}, None)
    assert (thinker.name, thinker.use, thinker.from_) == ("thinker", f"{tmp_path}/mine.py:Thinker", "ears")
    assert thinker.weights is None, "another's are not its own"
    assert (voice.name, voice.use, voice.dtype) == ("mouth", f"{tmp_path}/sub/voice.py", "bfloat16")


def written(folder: Path, weights: str) -> Path:
    """A configuration in a folder of its own."""
    folder.mkdir(exist_ok=True)
    path = folder / "config.yaml"
    path.write_text(f"stages: [{{use: script.ears, weights: {weights}}}]")
    return path


@pytest.mark.parametrize("weights", ["models/some", "./models/some", "../site/models/some", "models/some.gguf"])
def test_relative_weights_count_from_the_configuration_s_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str
) -> None:
    path = written(tmp_path / "site", weights)
    (path.parent / weights).mkdir(parents=True)
    (tmp_path / weights.removeprefix("../")).mkdir(parents=True, exist_ok=True)
    monkeypatch.chdir(tmp_path)
    assert load_config("site/config.yaml").stages[0].weights == str(path.parent / weights)
    model = path.with_name("model.yaml")
    model.write_text(f"model: script\nweights: {weights}")
    assert load_config(model).weights == str(path.parent / weights)


def test_weights_that_lie_in_the_working_directory_alone_are_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = written(tmp_path / "site", "./models")
    (tmp_path / "models").mkdir()
    monkeypatch.chdir(tmp_path)
    with pytest.raises(
        ConfigError, match=r"stages\[0\]\.weights: there is no './models' in .*, but in the working directory"
    ) as caught:
        load_config(path)
    assert f"folder {path.parent}, where" in str(caught.value)
    assert str(caught.value).endswith(f"Write {tmp_path / 'models'}")
    path.write_text("model: script\nweights: models")
    with pytest.raises(ConfigError, match=r"weights: there is no 'models' in .*, but in the working directory"):
        load_config(path)
    assert load_config(path, weights="models").weights == "models", "a command line's path counts from there"


@pytest.mark.parametrize("weights", ["Qwen/Qwen2.5-Omni-7B", "'hub:a/b'", "zipformer-en", "/nowhere/at/all"])
def test_names_and_hub_ids_stay_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, weights: str) -> None:
    (tmp_path / "zipformer-en").mkdir()
    monkeypatch.chdir(tmp_path)
    assert load_config(written(tmp_path / "site", weights)).stages[0].weights == weights.strip("'")
