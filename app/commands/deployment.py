"""The configuration that a command means: a path, the name of one that comes with Parley, or the built-in model's.

Knows no engine that runs; raises ConfigError with the nearest known name.
"""

from __future__ import annotations

import dataclasses
import itertools
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import yaml

from app.commands.open_ears import installed_ears
from engine import ConfigError, EngineSpec, StageSpec, WorkerSpec, load_config, nearest, thinker_of, written_out
from engine.deployment.describe import hears_for, stages_of, use_of
from engine.deployment.llm_urls import USE_FOLDER
from engine.deployment.model_catalog import catalogue
from engine.errors import WeightsError

DEFAULT = "nano"
CONFIGS = Path(__file__).parents[2] / "configs"

DEVICES = Path("/dev")
VLLM = Path(__file__).parents[2] / ".vllm" / "bin" / "python"
"""The interpreter of vLLM's own environment, which `make vllm` makes."""
EARS, THINKER, VOICE = "ears", "thinker", "voice"
AUTO = "auto"
_STAGE_AND_PATH = re.compile(r"(?P<use>[a-z]\w+(\.\w+)?):(?P<path>.+)")


@dataclass(frozen=True, slots=True)
class Parts:
    """Stages that the command line names, in place of those of a configuration."""

    thinker: str | None = None
    """A short form, as ``ollama:MODEL``, ``gguf:PATH`` or ``vllm:PATH``, or a model of the catalogue."""
    thinker_key_file: str | None = None
    ears: str | None = None
    """A model of the catalogue, a family, as ``nano``, a path, or ``STAGE:PATH``, as ``asr.sherpa:./folder``; so
    ``voice``. ``auto``: the configuration's, or pulled ones where those know only the requests of another thinker."""
    voice: str | None = None


def deployment(
    config: str | None = None, model: str | None = None, weights: str | None = None, parts: Parts | None = None
) -> EngineSpec:
    """The spec of a configuration, by path or by name; ``model``, ``weights`` and ``parts`` override what it says.

    A model brings a configuration of its own along, since its stages are not another's.
    """
    spec = load_config(path_of(config or _own(model) or DEFAULT), weights)
    if weights is not None and spec.stages:
        raise ConfigError("--weights: belongs to a model; the configuration names stages, each with its own weights")
    if model is not None:
        spec = dataclasses.replace(spec, model=model)
    return spec if parts is None else _with(spec, parts)


def _with(spec: EngineSpec, parts: Parts) -> EngineSpec:
    """The configuration's pipeline with these parts in it."""
    if parts.ears == AUTO:
        kept = _with(spec, dataclasses.replace(parts, ears=None))
        ears = installed_ears() if parts.thinker and hears_for(_before_thinker(kept)) else None
        return kept if ears is None else _with(spec, dataclasses.replace(parts, ears=ears))
    if parts.thinker is None and parts.thinker_key_file is not None:
        raise ConfigError("--thinker-key-file: belongs to --thinker, which is not there")
    if parts == Parts():
        return spec
    whole = written_out(spec)
    names = [stage.name for stage in whole.stages]
    if THINKER not in names:
        raise ConfigError(f"The configuration has no stage named {THINKER}, beside which other parts could be put.")
    at = names.index(THINKER)
    stages = (
        *(whole.stages[:at] if parts.ears is None else _given(parts.ears, EARS)),
        whole.stages[at] if parts.thinker is None else _thinker(parts.thinker, parts.thinker_key_file),
        *(whole.stages[at + 1 :] if parts.voice is None else _given(parts.voice, VOICE)),
    )
    workers = _workers(whole.workers, stages)
    return dataclasses.replace(whole, model=None, weights=None, options={}, stages=stages, workers=workers)


def part_options(spec: EngineSpec, parts: Parts) -> dict[str, str]:
    """Return the options that name every part of a deployment made by ``parts``; those chosen automatically, too."""
    if parts == Parts():
        return {}
    heard = _before_thinker(spec)
    ears = _name_of(parts.ears, EARS, heard)
    voice = _name_of(parts.voice, VOICE, spec.stages[len(heard) + 1 :])
    named = {EARS: ears, THINKER: parts.thinker, VOICE: voice}
    return {f"--{part}": name for part, name in named.items() if name}


def _name_of(asked: str | None, part: str, stages: tuple[StageSpec, ...]) -> str | None:
    """Return what stands for these stages on a command line; None if only the configuration can name them."""
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
        raise ConfigError("--thinker-key-file: belongs to a server; a model's file asks for no key")
    key = {} if key_file is None else {"key_file": str(Path(key_file).absolute())}
    return StageSpec(
        use=found.use, name=THINKER, weights=found.weights, options={**found.options, **key}, max_batch=found.max_batch
    )


def _given(text: str, part: str) -> tuple[StageSpec, ...]:
    """Return ears or a voice by a catalogue name, a family, a path, or STAGE:PATH.

    Raises ConfigError and WeightsError.
    """
    named = _STAGE_AND_PATH.fullmatch(text)
    path = Path(named["path"] if named else text).expanduser().absolute()
    if named is None and not (set(text) & {"/", "\\"} or text.startswith((".", "~"))):
        return _of_family(text, part) or _of_catalogue(text, part)
    if not path.exists():
        raise ConfigError(f"--{part}: there is no file or folder {path}")
    use = named["use"] if named else use_of("asr" if part == EARS else "tts", path)
    return _stages(use, part, str(path), {})


def _of_family(name: str, part: str) -> tuple[StageSpec, ...]:
    """Return the stages of a family on one side of its thinker; none for a name that is no such family."""
    try:
        line = stages_of(name, None, {})
    except ConfigError:
        return ()
    places = [place for place, stage in enumerate(line) if stage.name == THINKER]
    return () if not places else line[: places[0]] if part == EARS else line[places[0] + 1 :]


def _of_catalogue(name: str, part: str) -> tuple[StageSpec, ...]:
    """Return the stages of a catalogue model. Raises ConfigError, with the nearest name, for an unknown one."""
    fitting = {model.name: model for model in catalogue().values() if model.part == part}
    if name not in fitting:
        no = "no ears are" if part == EARS else f"no {part} is"
        raise ConfigError(f"--{part}: {no} called {name!r} ({nearest(name, fitting)}; see `parley models`)")
    # Ears cannot tell from their files which languages they understand.
    options = {"languages": list(fitting[name].languages)} if part == EARS else {}
    return _stages(fitting[name].use, part, name, options)


def _stages(use: str, part: str, weights: str, options: Mapping[str, Any]) -> tuple[StageSpec, ...]:
    """Return one stage, or all stages of a family."""
    if "." in use:
        return (StageSpec(use=use, name=part, weights=weights, options=options),)
    return stages_of(use, weights, options)


def _workers(workers: tuple[WorkerSpec, ...], stages: Sequence[StageSpec]) -> tuple[WorkerSpec, ...]:
    """The same workers for the stages that stay, and one for each that is new: what may block holds up no other."""
    names = {stage.name for stage in stages if stage.use != USE_FOLDER}
    staying = [
        dataclasses.replace(worker, stages=tuple(name for name in worker.stages if name in names)) for worker in workers
    ]
    hosted = {name for worker in staying for name in worker.stages}
    new = [_worker(stage) for stage in stages if stage.name not in hosted]
    return (*(worker for worker in staying if worker.stages), *new)


def _worker(stage: StageSpec) -> WorkerSpec:
    """vLLM has an environment of its own, and the GPU where there is one."""
    if stage.use != USE_FOLDER:
        return WorkerSpec(stages=(stage.name,))
    devices: tuple[str | int, ...] = (0,) if gpus() else ("cpu",)
    return WorkerSpec(stages=(stage.name,), devices=devices, python=str(VLLM) if VLLM.exists() else None)


def with_server(spec: EngineSpec, given: Mapping[str, str | int | None]) -> EngineSpec:
    """The configuration with the server's settings that a command line gives: not None, they win over its own."""
    flags = {name: value for name, value in given.items() if value is not None}
    return dataclasses.replace(spec, server={**spec.server, **flags})


def written(spec: EngineSpec) -> str:
    """The YAML that stands for a spec: what differs from the defaults."""
    plain = _plain(spec) | {"server": dict(spec.server)}
    return yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, default_flow_style=None, width=120)


def _plain(value: Any) -> Any:
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        named = ((one, getattr(value, one.name)) for one in dataclasses.fields(value))
        return {one.name.rstrip("_"): _plain(held) for one, held in named if held != _default(one)}
    if isinstance(value, tuple):
        return [_plain(one) for one in cast("tuple[Any, ...]", value)]
    return dict(cast("dict[str, Any]", value)) if isinstance(value, Mapping) else value


def _default(one: dataclasses.Field[Any]) -> Any:
    return one.default_factory() if one.default_factory is not dataclasses.MISSING else one.default


def _own(model: str | None) -> str | None:
    """The configuration of a model's own name, else the first one of that model whose devices are here."""
    known = configurations()
    if model is None or model in known:
        return model
    here = gpus()
    specs = ((name, load_config(path, weights="")) for name, path in known.items())  # of any weights
    return next((name for name, spec in specs if spec.model == model and _devices(spec) <= here), None)


def _devices(spec: EngineSpec) -> int:
    """Count the GPUs of this machine that a deployment names."""
    named = {str(device) for worker in spec.workers if not worker.resources for device in worker.devices}
    return len(named - {"cpu"})


def gpus() -> int:
    """Count the NVIDIA GPUs of this machine, as its device files say: nothing heavy is imported to ask."""
    return sum(path.name.removeprefix("nvidia").isdigit() for path in DEVICES.glob("nvidia*"))


def configurations() -> dict[str, Path]:
    """The configurations that come with Parley, by name."""
    return {path.stem: path for path in sorted(CONFIGS.glob("*.yaml"))}


def path_of(config: str) -> Path:
    """The file of a configuration, by path or by name. Raises ConfigError."""
    path = Path(config)
    if path.exists() or path.suffix in (".yaml", ".yml"):
        return path
    known = configurations()
    if config not in known:
        raise ConfigError(f"there is no configuration {config!r} ({nearest(config, known)})")
    return known[config]
