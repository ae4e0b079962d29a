"""Which configuration a command means."""

from __future__ import annotations

from pathlib import Path

import pytest

from app.commands import deployment as deployments
from app.commands.deployment import AUTO, Parts, deployment, part_options
from engine import ConfigError, EngineSpec
from engine.deployment.describe import describe
from engine.deployment.model_catalog import CatalogModel, File
from engine.errors import WeightsError


@pytest.mark.parametrize(("gpus", "devices"), [(0, {"cpu"}), (1, {0}), (2, {0})])
def test_a_model_brings_a_configuration_whose_devices_are_here(
    gpus: int, devices: set[object], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(deployments, "gpus", lambda: gpus)
    spec = deployment(model="qwen3_omni", weights="folder")
    assert (spec.model, spec.weights) == ("qwen3_omni", "folder")
    assert {device for worker in spec.workers for device in worker.devices} == devices


def test_a_configuration_of_the_model_s_own_name_comes_first() -> None:
    assert deployment(model="script").workers[0].stages[0] == "ears"
    assert deployment(model="script").model == "script"


def test_a_configuration_that_is_named_is_the_one() -> None:
    assert deployment("qwen3_omni_2gpu", model="qwen3_omni") == deployment("qwen3_omni_2gpu")


def test_an_unknown_model_is_left_to_the_engine_and_an_unknown_configuration_is_not() -> None:
    assert deployment(model="qwen3").model == "qwen3"
    with pytest.raises(ConfigError, match="did you mean 'qwen3_omni_tiny'"):
        deployment("qwen3_omni_tini")


def test_gpus_are_counted_by_their_device_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("nvidia0", "nvidia1", "nvidiactl", "nvidia-uvm", "null"):
        (tmp_path / name).touch()
    monkeypatch.setattr(deployments, "DEVICES", tmp_path)
    assert deployments.gpus() == 2


def parts_of(spec: EngineSpec) -> tuple[list[tuple[str, str, str | None]], list[tuple[str, ...]]]:
    stages = [(stage.name, stage.use, stage.weights) for stage in spec.stages]
    return stages, [worker.stages for worker in spec.workers]


FILES = (File("x"),)
CATALOGUE = {
    "zip": CatalogModel("zip", "ears", "asr.some", "a/b", "main", FILES, "MIT", ("en",), 1),
    "kokoro": CatalogModel("kokoro", "voice", "tts.some", "a/b", "main", FILES, "MIT", ("en",), 1),
}


def test_ears_and_a_voice_of_the_catalogue_take_the_configuration_s_places(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployments, "catalogue", lambda: CATALOGUE)
    stages, workers = parts_of(deployment(parts=Parts(ears="zip", voice="kokoro")))
    assert stages == [
        ("ears", "asr.some", "zip"), ("thinker", "nano.thinker", None), ("voice", "tts.some", "kokoro"),
    ]  # fmt: skip
    assert workers == [("ears",), ("thinker",), ("voice",)]
    assert deployment(parts=Parts(ears="zip")).stages[0].options == {"languages": ["en"]}
    stages, workers = parts_of(deployment(parts=Parts(thinker="ollama:m", ears="zip")))
    assert [name for name, _, _ in stages] == ["ears", "thinker", "talker", "code2wav"]
    assert workers == [("ears",), ("thinker", "talker", "code2wav")]


def test_a_voice_of_several_stages_takes_all_of_its_places() -> None:
    stages, workers = parts_of(deployment(parts=Parts(ears="zipformer-en", voice="qwen3-tts-0.6b")))
    assert stages[2:] == [(name, f"qwen3_tts.{name}", "qwen3-tts-0.6b") for name in ("talker", "code2wav")]
    assert workers == [("ears",), ("thinker", "talker", "code2wav")]


def test_a_thinker_of_the_catalogue_runs_in_its_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    qwen = CatalogModel("qwen", "thinker", "llm.llamacpp", "a/b", "main", FILES, "MIT", ("en",), 1)
    monkeypatch.setattr(deployments, "catalogue", lambda: CATALOGUE | {"qwen": qwen})
    stages, workers = parts_of(deployment(parts=Parts(thinker="qwen")))
    assert stages[1] == ("thinker", "llm.llamacpp", "qwen")
    assert workers == [("ears",), ("thinker", "talker", "code2wav")]
    with pytest.raises(ConfigError, match="--thinker: no thinker is named 'zip'"):
        deployment(parts=Parts(thinker="zip"))


def test_names_of_other_parts_are_one_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployments, "catalogue", lambda: CATALOGUE)
    with pytest.raises(ConfigError, match=r"--ears: no ears are named 'zipp' .*did you mean 'zip'"):
        deployment(parts=Parts(ears="zipp"))
    with pytest.raises(ConfigError, match=r"--voice: no voice is named 'zip' .*known: kokoro"):
        deployment(parts=Parts(voice="zip"))


def test_a_speaker_of_the_configuration_s_voice_becomes_its_default() -> None:
    """`parley serve --voice slt` selects the voice that `parley say --voice slt` speaks with."""
    spec = deployment(parts=Parts(voice="slt"))
    assert uses(spec) == ["nano.ears", "nano.thinker", "nano.talker", "nano.code2wav"]
    assert [voice.id for voice in describe(spec).voices] == ["slt", "rms", "awb"]
    assert [voice.id for voice in describe(deployment()).voices] == ["rms", "slt", "awb"]
    with pytest.raises(ConfigError, match=r"no voice is named 'slx' .*see `parley models` and `parley voices`"):
        deployment(parts=Parts(voice="slx"))


def test_ears_and_a_voice_are_taken_from_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The stage is found by the folder's files, and paths count from the working directory."""
    pytest.importorskip("onnx")
    from tests.engine.worker.stages.asr import tiny_ears
    from tests.engine.worker.stages.tts import tiny_voices

    tiny_ears.transducer(tmp_path / "streaming")
    tiny_voices.kokoro(tmp_path / "voice")
    monkeypatch.chdir(tmp_path)
    stages, _ = parts_of(deployment("script", parts=Parts(ears="./streaming", voice=f"{tmp_path}/voice")))
    assert stages[0] == ("ears", "asr.sherpa", f"{tmp_path}/streaming")
    assert stages[-1] == ("voice", "tts.sherpa", f"{tmp_path}/voice")


def test_a_stage_before_the_path_is_taken_at_its_word(tmp_path: Path) -> None:
    stages, _ = parts_of(deployment("script", parts=Parts(ears=f"asr.sherpa_offline:{tmp_path}")))
    assert stages[0] == ("ears", "asr.sherpa_offline", str(tmp_path))
    stages, _ = parts_of(deployment("script", parts=Parts(voice=f"qwen3_tts:{tmp_path}")))
    assert stages[2:] == [(name, f"qwen3_tts.{name}", str(tmp_path)) for name in ("talker", "code2wav")]


@pytest.mark.parametrize("text", ["./mine/voice.py:Bells", "mine/voice.py:Bells", "mine/voice.py"])
def test_a_stage_of_ones_own_may_be_the_ears_or_the_voice(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"--voice: no such file or folder: /.*/mine/voice\.py$"):
        deployment("script", parts=Parts(voice=text))
    file = tmp_path / "mine" / "voice.py"
    file.parent.mkdir()
    file.touch()
    use = text.replace(text.partition(":")[0], str(file))
    assert parts_of(deployment("script", parts=Parts(voice=text)))[0][-1] == ("voice", use, None)
    assert parts_of(deployment("script", parts=Parts(ears=text)))[0][0] == ("ears", use, None)


def test_a_path_that_no_stage_loads_is_one_sentence(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"--ears: no such file or folder: .*/nowhere"):
        deployment("script", parts=Parts(ears=f"{tmp_path}/nowhere"))
    with pytest.raises(
        WeightsError, match=r"no stage can load .* \(tried .*asr\.sherpa_offline\)\. .* the stage: .* asr"
    ):
        deployment("script", parts=Parts(ears=str(tmp_path)))


@pytest.mark.parametrize("form", ["gguf:nowhere.gguf", "gguf:./nowhere", "gguf:nowhere", "vllm:nowhere"])
def test_a_thinkers_weights_must_exist_before_the_server_starts(
    form: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"^--thinker: no such file or folder: /.*/nowhere"):
        deployment(parts=Parts(thinker=form))


@pytest.mark.parametrize("weights", ["./nowhere", "/nowhere/at/all"])
def test_a_path_of_weights_must_exist_before_the_server_starts(weights: str) -> None:
    with pytest.raises(ConfigError, match=r"^--weights: no such file or folder: /.*nowhere"):
        deployment(weights=weights)


def uses(spec: EngineSpec) -> list[str]:
    return [stage.use for stage in spec.stages]


def test_another_thinker_gets_pulled_ears_in_the_place_of_those_that_know_nanos_requests(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(deployments, "catalogue", lambda: CATALOGUE)
    given = Parts(thinker="ollama:m", ears=AUTO)
    monkeypatch.setattr(deployments, "installed_ears", lambda: None)
    assert uses(deployment(parts=given))[0] == "nano.ears"
    monkeypatch.setattr(deployments, "installed_ears", lambda: "zip")
    assert uses(deployment(parts=given)) == ["asr.some", "llm.openai", "nano.talker", "nano.code2wav"]
    assert uses(deployment(parts=Parts(thinker="ollama:m", ears="nano")))[0] == "nano.ears", "by its name"
    assert uses(deployment("script", parts=given))[0] == "script.ears", "they understand anything"
    assert uses(deployment(parts=Parts(voice="nano", ears=AUTO)))[0] == "nano.ears", "nano answers"


def test_a_deployment_names_all_of_its_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(deployments, "catalogue", lambda: CATALOGUE)
    monkeypatch.setattr(deployments, "installed_ears", lambda: "zip")
    given = Parts(thinker="ollama:m", ears=AUTO)
    named = {"--ears": "zip", "--thinker": "ollama:m", "--voice": "nano"}
    assert part_options(deployment(parts=given), given) == named
    again = Parts(thinker="ollama:m", ears="zip", voice="nano")
    assert deployment(parts=again) == deployment(parts=given)
    assert part_options(deployment(parts=again), again) == named


@pytest.mark.parametrize(("gpus", "device"), [(0, "cpu"), (1, 0)])
def test_vllm_has_a_worker_of_its_own_with_its_own_interpreter(
    gpus: int, device: object, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """nano's thinker shared its worker with the voice."""
    monkeypatch.setattr(deployments, "gpus", lambda: gpus)
    monkeypatch.setattr(deployments, "VLLM", tmp_path / "python")
    form = f"vllm:{tmp_path}"
    spec = deployment(parts=Parts(thinker=form))
    assert [worker.stages for worker in spec.workers] == [("ears",), ("talker", "code2wav"), ("thinker",)]
    assert (spec.workers[-1].devices, spec.workers[-1].python) == ((device,), None), "make vllm has not been run"
    (tmp_path / "python").touch()
    assert deployment(parts=Parts(thinker=form)).workers[-1].python == str(tmp_path / "python")
