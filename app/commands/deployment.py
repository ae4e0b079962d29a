"""The configuration that a command uses: a path, the name of one that comes with Parley, or the built-in model's.

Starts no engine. Raises ConfigError with the nearest known name.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from app.commands.open_ears import installed_ears
from engine import ConfigError, EngineSpec, StageSpec, WorkerSpec, load_config, nearest, thinker_of, written_out
from engine.deployment.config import file_of
from engine.deployment.describe import hears_for, speakers_of, stages_of, use_of
from engine.deployment.llm_urls import USE_FOLDER
from engine.deployment.model_catalog import catalogue
from engine.deployment.plain import plain
from engine.errors import WeightsError

DEFAULT = "nano"
CONFIGS = Path(__file__).parents[2] / "configs"

DEVICES = Path("/dev")
VLLM = Path(__file__).parents[2] / ".vllm" / "bin" / "python"
"""The interpreter of vLLM's own environment, which `make vllm` creates."""
EARS, THINKER, VOICE = "ears", "thinker", "voice"
AUTO = "auto"
_STAGE_AND_PATH = re.compile(r"(?P<use>[a-z]\w+(\.\w+)?):(?P<path>.+)")


@dataclass(frozen=True, slots=True)
class Parts:
    """The stages that the command line names, which replace those of a configuration."""

    thinker: str | None = None
    """A short form, such as ``ollama:MODEL``, ``gguf:PATH`` or ``vllm:PATH``, or a model of the catalogue."""
    thinker_key_file: str | None = None
    ears: str | None = None
    """A model of the catalogue, a family such as ``nano``, a path, ``STAGE:PATH`` such as ``asr.sherpa:./folder``, or
    ``FILE.py:CLASS``, a stage of the user's own.

    ``auto``: the configuration's, or a downloaded ASR model if the configuration's knows only another LLM's requests.
    """
    voice: str | None = None
    """The same, or a speaker of the configuration's voice, such as ``slt``."""


def deployment(
    config: str | None = None, model: str | None = None, weights: str | None = None, parts: Parts | None = None
) -> EngineSpec:
    """Return the spec of a configuration, by path or name. ``model``, ``weights`` and ``parts`` override it.

    A model uses a configuration of its own, since models differ in their stages.
    """
    spec = load_config(path_of(config or _own(model) or DEFAULT), weights)
    if weights is not None and spec.stages:
        raise ConfigError("--weights: not for a configuration with stages, which have their own weights")
    if weights is not None and weights.startswith(("/", ".")) and spec.cluster.listen is None:
        _existing(weights, "weights")
    if model is not None:
        spec = dataclasses.replace(spec, model=model)
    return spec if parts is None else _with(spec, parts)


def _with(spec: EngineSpec, parts: Parts) -> EngineSpec:
    """Return the configuration's pipeline with these parts."""
    if parts.ears == AUTO:
        kept = _with(spec, dataclasses.replace(parts, ears=None))
        ears = installed_ears() if parts.thinker and hears_for(_before_thinker(kept)) else None
        return kept if ears is None else _with(spec, dataclasses.replace(parts, ears=ears))
    if parts.thinker is None and parts.thinker_key_file is not None:
        raise ConfigError("--thinker-key-file: requires --thinker")
    if parts == Parts():
        return spec
    whole = written_out(spec)
    names = [stage.name for stage in whole.stages]
    if THINKER not in names:
        raise ConfigError(f"the configuration has no stage named {THINKER}, so its parts can't be replaced")
    at = names.index(THINKER)
    stages = (
        *(whole.stages[:at] if parts.ears is None else _given(parts.ears, EARS)),
        whole.stages[at] if parts.thinker is None else _thinker(parts.thinker, parts.thinker_key_file),
        *_voice(parts.voice, whole.stages[at + 1 :]),
    )
    workers = _workers(whole.workers, stages)
    return dataclasses.replace(whole, model=None, weights=None, options={}, stages=stages, workers=workers)


def part_options(spec: EngineSpec, parts: Parts) -> dict[str, str]:
    """Return the options for all parts of a deployment made by ``parts``, including those chosen automatically."""
    if parts == Parts():
        return {}
    heard = _before_thinker(spec)
    ears = _name_of(parts.ears, EARS, heard)
    voice = _name_of(parts.voice, VOICE, spec.stages[len(heard) + 1 :])
    named = {EARS: ears, THINKER: parts.thinker, VOICE: voice}
    return {f"--{part}": name for part, name in named.items() if name}


def _name_of(asked: str | None, part: str, stages: tuple[StageSpec, ...]) -> str | None:
    """Return the value of the option ``part`` that names these stages; None if only a configuration can name them."""
    if asked is not None and asked != AUTO:
        return asked
    if not stages:
        return None
    name = stages[0].weights or stages[0].use.partition(".")[0]
    try:
        return name if _given(name, part) == stages else None
    except (ConfigError, WeightsError):
        return None


def _before_thinker(spec: EngineSpec) -> tuple[StageSpec, ...]:
    return tuple(itertools.takewhile(lambda stage: stage.name != THINKER, spec.stages))


def _thinker(form: str, key_file: str | None) -> StageSpec:
    if form in catalogue():
        _of_catalogue(form, THINKER)
        form = f"gguf:{form}"
    found = thinker_of(form)
    if key_file is not None and not found.has_key:
        raise ConfigError("--thinker-key-file: only for a server; a model's file needs no key")
    if found.weights is not None and found.weights not in catalogue():
        _existing(found.weights, THINKER)
    key = {} if key_file is None else {"key_file": str(Path(key_file).absolute())}
    return StageSpec(
        use=found.use, name=THINKER, weights=found.weights, options={**found.options, **key}, max_batch=found.max_batch
    )


def _voice(asked: str | None, stages: tuple[StageSpec, ...]) -> tuple[StageSpec, ...]:
    """Return the stages of the voice: the configuration's, with the requested speaker as the default, or others."""
    if asked is None:
        return stages
    if asked in speakers_of(stages):
        return tuple(dataclasses.replace(stage, options={**stage.options, VOICE: asked}) for stage in stages)
    return _given(asked, VOICE)


def _given(text: str, part: str) -> tuple[StageSpec, ...]:
    """Return the stages of ASR or TTS by a catalogue name, a family, a path, STAGE:PATH or FILE.py:CLASS.

    FILE.py:CLASS is a stage of the user's own. Raises ConfigError and WeightsError.
    """
    if (own := file_of(text)) is not None:
        file, export = own
        use = str(_existing(file, part)) + (f":{export}" if export else "")
        return (StageSpec(use=use, name=part),)
    named = _STAGE_AND_PATH.fullmatch(text)
    if named is None and not (set(text) & {"/", "\\"} or text.startswith((".", "~"))):
        return _of_family(text, part) or _of_catalogue(text, part)
    path = _existing(named["path"] if named else text, part)
    use = named["use"] if named else use_of("asr" if part == EARS else "tts", path)
    return _stages(use, part, str(path), {})


def _existing(text: str, option: str) -> Path:
    """Return a path of the command line as an absolute path. Raises ConfigError if it does not exist."""
    path = Path(text).expanduser().absolute()
    if not path.exists():
        raise ConfigError(f"--{option}: no such file or folder: {path}")
    return path


def _of_family(name: str, part: str) -> tuple[StageSpec, ...]:
    """Return a family's stages on one side of its LLM; none if the name is not such a family."""
    try:
        line = stages_of(name, None, {})
    except ConfigError:
        return ()
    places = [place for place, stage in enumerate(line) if stage.name == THINKER]
    return () if not places else line[: places[0]] if part == EARS else line[places[0] + 1 :]


def _of_catalogue(name: str, part: str) -> tuple[StageSpec, ...]:
    """Return the stages of a catalogue model. Raises ConfigError with the nearest name."""
    fitting = {model.name: model for model in catalogue().values() if model.part == part}
    if name not in fitting:
        no = "no ears are" if part == EARS else f"no {part} is"
        lists = "`parley models` and `parley voices`" if part == VOICE else "`parley models`"
        raise ConfigError(f"--{part}: {no} named {name!r} ({nearest(name, fitting)}; see {lists})")
    # The files of an ASR model don't tell which languages it understands.
    options = {"languages": list(fitting[name].languages)} if part == EARS else {}
    return _stages(fitting[name].use, part, name, options)


def _stages(use: str, part: str, weights: str, options: Mapping[str, Any]) -> tuple[StageSpec, ...]:
    """Return one stage, or all stages of a family."""
    if "." in use:
        return (StageSpec(use=use, name=part, weights=weights, options=options),)
    return stages_of(use, weights, options)


def _workers(workers: tuple[WorkerSpec, ...], stages: Sequence[StageSpec]) -> tuple[WorkerSpec, ...]:
    """Return the workers of the remaining stages, and a new worker for each new stage, so that none blocks another."""
    names = {stage.name for stage in stages if stage.use != USE_FOLDER}
    staying = [
        dataclasses.replace(worker, stages=tuple(name for name in worker.stages if name in names)) for worker in workers
    ]
    hosted = {name for worker in staying for name in worker.stages}
    new = [_worker(stage) for stage in stages if stage.name not in hosted]
    return (*(worker for worker in staying if worker.stages), *new)


def _worker(stage: StageSpec) -> WorkerSpec:
    """Return a worker for a stage. vLLM gets its own environment, and the GPU if there is one."""
    if stage.use != USE_FOLDER:
        return WorkerSpec(stages=(stage.name,))
    devices: tuple[str | int, ...] = (0,) if gpus() else ("cpu",)
    return WorkerSpec(stages=(stage.name,), devices=devices, python=str(VLLM) if VLLM.exists() else None)


def with_server(spec: EngineSpec, given: Mapping[str, str | int | None]) -> EngineSpec:
    """Return the configuration with server settings from the command line; those that are not None take precedence."""
    flags = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(spec, server={**spec.server, **flags})


def written(spec: EngineSpec) -> str:
    """Return the YAML of a spec: everything that differs from the defaults."""
    tree = plain(spec) | {"server": dict(spec.server)}
    return yaml.safe_dump(tree, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)


def _own(model: str | None) -> str | None:
    """Return the configuration named after a model, or the first one of that model whose devices exist here."""
    known = configurations()
    if model is None or model in known:
        return model
    here = gpus()
    specs = ((name, load_config(path, weights="")) for name, path in known.items())  # with any weights
    return next((name for name, spec in specs if spec.model == model and _devices(spec) <= here), None)


def _devices(spec: EngineSpec) -> int:
    """Return how many GPUs of this machine a deployment uses."""
    named = {str(device) for worker in spec.workers if not worker.resources for device in worker.devices}
    return len(named - {"cpu"})


def gpus() -> int:
    """Return the number of NVIDIA GPUs according to the device files, without heavy imports."""
    return sum(path.name.removeprefix("nvidia").isdigit() for path in DEVICES.glob("nvidia*"))


def configurations() -> dict[str, Path]:
    """Return the configurations that come with Parley, by name."""
    return {path.stem: path for path in sorted(CONFIGS.glob("*.yaml"))}


def path_of(config: str) -> Path:
    """Return the file of a configuration, by path or name. Raises ConfigError."""
    path = Path(config)
    if path.exists() or path.suffix in (".yaml", ".yml"):
        return path
    known = configurations()
    if config not in known:
        raise ConfigError(f"unknown configuration {config!r} ({nearest(config, known)})")
    return known[config]
