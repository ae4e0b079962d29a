"""Strict parsing of the YAML configuration. The error for an unknown key names its path and the nearest known key.

The ``server:`` section belongs to ``app`` and is not checked here. Model families and stages are not known here either:
``engine.deployment.describe`` expands a ``model`` to its stages and checks that every stage has a worker.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import yaml

from engine.deployment.did_you_mean import nearest
from engine.deployment.model_catalog import catalogue
from engine.errors import ConfigError

Schedule = Literal["urgency", "arrival"]
M = TypeVar("M", bound="ModelSpec")
_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<export>\w+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """A worker: a process on a device that hosts neighbouring stages. It may have several replicas."""

    stages: tuple[str, ...]
    """The names of the neighbouring stages that the worker hosts. Data between them never leaves its process."""
    devices: tuple[str | int, ...] = ("cpu",)
    """The devices of its replicas, in turn: ``cpu``, the numbers of GPUs, or ``mps`` (Apple's)."""
    replicas: int = 1
    """The number of processes that host these stages. 0: they join from other machines (needs ``cluster.listen``)."""
    max_batch: int = 16
    """Maximum requests per step, and per replica."""
    threads: int = 1
    """CPU threads of a step. A large voice on a small machine needs more than one."""
    dtype: str = "float32"
    """The type of the weights, if the stage offers a choice: ``float32`` or ``bfloat16``."""
    schedule: Schedule = "urgency"
    """The order in which requests step: the most urgent listener first, or the oldest request first (for
    comparison)."""
    python: str | None = None
    """The path of the worker's own Python interpreter, for libraries that pin conflicting versions. None: the server's
    interpreter. Workers that join from other machines keep their own."""
    resources: Mapping[str, float] = field(default_factory=dict[str, float])
    """Resources that a cluster launcher requests for each replica, like ``{num_gpus: 1}``. The cluster then assigns the
    devices."""

    def device(self, replica: int) -> str:
        """Return the device of the ``replica``-th replica, from 0."""
        return str(self.devices[replica % len(self.devices)])

    @property
    def most(self) -> float:
        """The maximum number of replicas: one for each device other than the CPU."""
        placed = self.resources or not any(exclusive(device) for device in self.devices)
        return math.inf if placed else len(self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    """A model of a stage: the stage's own, or one of its ``models``."""

    use: str
    """A stage of a family (``nano.talker``), a single stage (``llm.openai``), or a file (``./my_stage.py``)."""
    weights: str | None = None
    """A path from the configuration's folder, a hub id, or the name of a catalogue model. None: the stage's built-in
    weights."""
    dtype: str | None = None
    """The type of its weights. None: the worker's ``dtype``."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The stage's own settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec(ModelSpec):
    """A stage of a pipeline."""

    name: str = ""
    """The stage's name in the pipeline. Default: the last part of ``use``."""
    max_batch: int | None = None
    """Maximum requests per step, and per replica. None: the worker's ``max_batch``, or fewer where memory is short."""
    from_: str | None = None
    """The stage whose output this stage reads.

    None: the nearest stage before it that feeds a kind of chunk it takes.
    """
    models: tuple[ModelSpec, ...] = ()
    """The models of a stage that is composed of several: a chain (`llm.chain`) or the voices of `tts.by_language`."""

    @property
    def all_weights(self) -> tuple[str, ...]:
        """The weights that the configuration names for the stage and for its models."""
        return tuple(one.weights for one in (self, *self.models) if one.weights)


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSpec:
    """How the server detects that a worker is lost."""

    interval_s: float = 0.2
    """Seconds between two heartbeats of a worker."""
    timeout_s: float = 1.0
    """Seconds without a heartbeat after which a worker counts as lost; at least the time of five steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """Workers on other machines; they can join only if ``listen`` is set."""

    listen: str | None = None
    """HOST:PORT where workers join. Port 0: any free port."""
    token_file: str | None = None
    """The file of the token that workers must know. A missing file is created at the start and removed at the end."""
    address: str | None = None
    """The address of the cluster on which a launcher places workers. None: the cluster of this machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSpec:
    """The number of codec frames in each chunk of audio: the first chunk is small, and later ones grow."""

    first: int = 1
    """Codec frames of an answer's first chunk. 1 gives the earliest first audio."""
    growth: float = 1.5
    """The size of a chunk relative to the one before. It should not exceed the voice's speed relative to real time."""
    steady: int = 25
    """Codec frames of a full-size chunk. Larger chunks cost less, but a barge-in discards more audio."""
    hurry: bool = True
    """Whether to shorten a chunk when playback would underrun. ``false``: every answer has the same chunk sizes."""

    def size(self, count: int) -> int:
        """Return the frames of the ``count``-th chunk, from 0."""
        ramp = math.log(self.steady / self.first, self.growth) if self.growth > 1 else math.inf
        return self.steady if count >= ramp else min(self.steady, math.ceil(self.first * self.growth**count))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """A deployment: its stages, or a ``model`` that stands for all stages of a family, and its workers."""

    model: str | None = None
    """The name of a family, like ``nano``, instead of ``stages``."""
    name: str | None = None
    """The name that clients see, and by which they choose among several configurations. None: the model's name."""
    stages: tuple[StageSpec, ...] = ()
    """The stages of the pipeline, in the order in which they read from each other."""
    workers: tuple[WorkerSpec, ...] = ()
    """The workers. Default: one for each speech recogniser and each blocking stage, and one for all other stages."""
    weights: str | None = None
    """The weights of a ``model``: a path from the configuration's folder, or a hub id. None: the family's built-in
    weights."""
    balance: Literal["least_queue", "round_robin", "random"] = "least_queue"
    """The choice of a replica for a request: the fewest leases and waiting requests, in turn, or random."""
    chunks: ChunkSpec = ChunkSpec()
    """The sizes of audio chunks: see "Chunks"."""
    queue: int = 64
    """Maximum requests that wait for a slot of a stage. Further requests are rejected."""
    stall_s: float = 30.0
    """Seconds without progress after which a request ends with an error."""
    empty_s: float = 0.8
    """Seconds that a request waits for a stage that has no replica. A lost worker may be back by then."""
    start_s: float = 300.0
    """Seconds until a starting worker must be ready."""
    drain_s: float = 30.0
    """Maximum seconds for which a draining worker finishes its requests."""
    heartbeat: HeartbeatSpec = HeartbeatSpec()
    """Detection of lost workers: see "Heartbeat"."""
    cluster: ClusterSpec = ClusterSpec()
    """Workers on other machines: see "Cluster"."""
    launcher: str = "local"
    """Where workers run: ``local`` processes, ``inline`` in the server's own process (for tests), or ``ray``."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The settings of the ``model``'s family."""
    server: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The server's settings; see the settings page."""

    @property
    def title(self) -> str:
        """The name to show before the model has been loaded."""
        return self.name or self.model or "+".join(stage.use for stage in self.stages)

    @property
    def on_one_machine(self) -> bool:
        """Whether all workers, and so all models, are on the server's machine."""
        return self.launcher != "ray" and self.cluster.listen is None


def load_config(path: str | Path, weights: str | None = None) -> EngineSpec:
    """Read a deployment's YAML file.

    Args:
        path: The path of the file.
        weights: Replaces the weights of the file's ``model``.

    Raises:
        ConfigError: The file is unreadable or invalid. The message begins with its path.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigError(f"{path}: cannot read the configuration: {reason}") from None
    try:
        return parse_config(text, Path(path).parent, weights)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_config(text: str, folder: Path | None = None, weights: str | None = None) -> EngineSpec:
    """Parse a deployment's YAML text.

    Args:
        text: The YAML text.
        folder: The folder to which its relative paths belong (stages, weights, interpreters). None: the working
            directory.
        weights: Replaces the weights of its ``model``. A relative path belongs to the working directory.

    Raises:
        ConfigError: The text is not valid YAML, or not a valid configuration.
    """
    spec: EngineSpec = build(EngineSpec, parse_yaml(text), "")
    _check(spec)
    here = folder or Path()
    workers = tuple(replace(one, python=one.python and str(_path(here, one.python))) for one in spec.workers)
    stages = tuple(_placed(stage, here, f"stages[{i}]") for i, stage in enumerate(spec.stages))
    return replace(
        spec,
        stages=stages,
        workers=workers,
        weights=_weights(spec.weights, here, "weights") if weights is None else weights,
    )


def parse_yaml(text: str) -> Any:
    """Parse YAML text, without duplicate keys.

    Raises:
        ConfigError: The text is not valid YAML. The message names the line.
    """
    try:
        return yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"not valid YAML: {line}{' '.join(str(error.problem).split())}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:  # an impossible date is a ValueError
        raise ConfigError(f"not valid YAML: {' '.join(str(error).split())}") from None


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which also rejects duplicate keys."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise ConfigError(
                        f"line {key.start_mark.line + 1}: the key {key.value!r} appears twice; remove one"
                    )
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def build(kind: Any, value: Any, path: str) -> Any:
    """Convert a parsed YAML value to the type of a field: mappings to dataclasses, lists to tuples.

    Raises:
        ConfigError: The value does not fit. The message begins with ``path``.
    """
    origin, arguments = get_origin(kind), get_args(kind)
    if is_dataclass(kind) and isinstance(kind, type):
        return _build_dataclass(kind, value, path)
    if origin is tuple:
        if not isinstance(value, list):
            raise ConfigError(f"{path}: must be a list, not {_word(value)}")
        return tuple(build(arguments[0], item, f"{path}[{i}]") for i, item in enumerate(value))
    if origin is Literal:
        if value not in arguments:
            raise ConfigError(
                f"{path}: {value!r} is not one of {', '.join(map(str, arguments))}{_nearest(value, arguments)}"
            )
        return value
    if origin is Mapping:
        if not isinstance(value, dict):
            raise ConfigError(f"{path}: must be a mapping, not {_word(value)}")
        return value
    allowed: tuple[Any, ...] = arguments or (kind,)
    if float in allowed and isinstance(value, int) and not isinstance(value, bool):
        value = value if int in allowed else float(value)
    if type(value) not in allowed:
        names = " or ".join("nothing" if one is type(None) else one.__name__ for one in allowed)
        raise ConfigError(f"{path}: must be {names}, not {_word(value)}")
    return value


def _build_dataclass(kind: type[Any], value: Any, path: str) -> Any:
    if not isinstance(value, dict):
        raise ConfigError(f"{path or 'the configuration'}: must be a mapping, not {_word(value)}")
    hints = get_type_hints(kind)
    names = {name.removesuffix("_"): name for name in hints}  # `from` is a keyword of Python
    for key in value:
        if key not in names:
            raise ConfigError(f"{_join(path, key)}: unknown key{_nearest(key, names)}")
    for one in fields(kind):
        if one.default is MISSING and one.default_factory is MISSING and one.name not in value:
            raise ConfigError(f"{_join(path, one.name)}: missing")
    return kind(**{names[key]: build(hints[names[key]], item, _join(path, key)) for key, item in value.items()})


def _check(spec: EngineSpec) -> None:
    """Check what types alone cannot express."""
    _check_stages(spec)
    _check_workers(spec)
    _require(1 <= spec.chunks.first <= spec.chunks.steady, "chunks.first: must be at least 1 and at most chunks.steady")
    _require(1 <= spec.chunks.growth < math.inf, "chunks.growth: must be at least 1")
    for name in ("queue", "stall_s", "start_s"):
        _require(0 < getattr(spec, name) < math.inf, f"{name}: must be a positive, finite number")
    for name in ("empty_s", "drain_s"):
        _require(0 <= getattr(spec, name) < math.inf, f"{name}: must be a finite number of at least 0")
    _require(
        0 < spec.heartbeat.interval_s <= spec.heartbeat.timeout_s / 2 < math.inf,
        "heartbeat.interval_s: must be above 0 and at most half of heartbeat.timeout_s",
    )
    if spec.cluster.listen is not None:
        address_of(spec.cluster.listen, "cluster.listen")
    both = (spec.cluster.listen is None) == (spec.cluster.token_file is None)
    _require(both, "cluster: set listen and token_file together, or neither")
    _check_devices(spec.workers)


def _check_stages(spec: EngineSpec) -> None:
    _require(
        (spec.model is None) != (not spec.stages),
        "stages: write either stages, or a model (which stands for all stages of its family); "
        f"{'the configuration has both' if spec.stages else 'the configuration has neither'}",
    )
    for key in ("weights", "options") if spec.stages else ():
        _require(not getattr(spec, key), f"{key}: belongs to a stage; write it as stages[…].{key}")
    for i, stage in enumerate(spec.stages):
        _require(bool(stage.use), f"stages[{i}].use: must name a stage")
        for j, model in enumerate(stage.models):
            _require(bool(model.use), f"stages[{i}].models[{j}].use: must name a stage")
        _require(stage.max_batch is None or stage.max_batch >= 1, f"stages[{i}].max_batch: must be at least 1")


def _check_workers(spec: EngineSpec) -> None:
    least = 0 if spec.cluster.listen else 1
    seen: dict[str, int] = {}
    for i, worker in enumerate(spec.workers):
        for name in ("stages", "devices"):
            _require(bool(getattr(worker, name)), f"workers[{i}].{name}: must name at least one")
        for name in ("max_batch", "threads"):
            _require(getattr(worker, name) >= 1, f"workers[{i}].{name}: must be at least 1")
        _require(worker.replicas >= least, f"workers[{i}].replicas: must be at least 1 (0 needs cluster.listen)")
        _require(worker.python != "", f"workers[{i}].python: must be the path of a Python interpreter")
        for stage in worker.stages:
            _require(stage not in seen, f"workers[{i}].stages: workers[{seen.get(stage)}] already hosts {stage}")
            seen[stage] = i


def _require(holds: bool, text: str) -> None:
    if not holds:
        raise ConfigError(text)


def file_of(use: str) -> tuple[str, str] | None:
    """Split a ``use`` that names a file into the file and its class.

    Returns:
        The file and the class; the class is "" for the file's STAGE. None if ``use`` does not name a file.
    """
    found = _FILE.fullmatch(use)
    return None if found is None else (found["file"], found["export"] or "")


def _placed(stage: StageSpec, folder: Path, path: str) -> StageSpec:
    """Fill in a stage's name, and make the paths of its files and of its models' files absolute."""
    name = stage.name or _name_of(stage.use)
    models = tuple(_located(model, folder, f"{path}.models[{i}]") for i, model in enumerate(stage.models))
    return replace(_located(stage, folder, path), name=name, models=models)


def _located(model: M, folder: Path, path: str) -> M:
    use = model.use if file_of(model.use) is None else str(_path(folder, model.use))
    return replace(model, use=use, weights=_weights(model.weights, folder, f"{path}.weights"))


def _name_of(use: str) -> str:
    if (found := file_of(use)) is None:
        return use.rpartition(".")[2]
    file, export = found
    return export.lower() or Path(file).stem


def _weights(text: str | None, folder: Path, key: str) -> str | None:
    """Return the absolute path of weights in ``folder``; a catalogue name or a hub id is returned unchanged.

    Raises ConfigError for a path that exists only relative to the working directory.
    """
    if text is None or (text in catalogue() and not (folder / text).exists()):
        return text
    if (folder / text).exists() or (text.startswith(".") and not Path(text).exists()):
        return str(_path(folder, text))
    if Path(text).exists():
        raise ConfigError(
            f"{key}: there is no {text!r} in the configuration's folder {folder.absolute()}, where relative paths "
            f"begin, but in the working directory. Write {Path(text).absolute()}"
        )
    return text


def _path(folder: Path, text: str) -> Path:
    """Return an absolute path without resolving symbolic links: a virtual environment's interpreter is one."""
    return (folder / text).absolute()


def _check_devices(workers: tuple[WorkerSpec, ...]) -> None:
    """Check that each replica has a device, and that workers share only the CPU. Raises ConfigError."""
    taken: dict[str, int] = {}
    for i, worker in enumerate(workers):
        if worker.replicas > worker.most:
            raise ConfigError(
                f"workers[{i}].devices: {worker.replicas} replicas need {worker.replicas} devices, one each, "
                f"not {len(worker.devices)}"
            )
        for device in worker.devices if not worker.resources else ():
            name = str(device).removeprefix("cuda:")
            if exclusive(device) and name in taken:
                raise ConfigError(
                    f"workers[{i}].devices: workers[{taken[name]}] already has the device {device}; "
                    "put stages that share a device into one worker"
                )
            taken[name] = i


def exclusive(device: str | int) -> bool:
    """Return whether only one worker may use a device."""
    return str(device) != "cpu"


def address_of(text: str, path: str) -> tuple[str, int]:
    """Split ``HOST:PORT`` into both parts. An IPv6 address is in brackets.

    Raises:
        ConfigError: The text is not HOST:PORT. The message begins with ``path``.
    """
    host, _, port = text.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or int(port) > 65535:
        raise ConfigError(f"{path}: must be HOST:PORT, not {text!r:.60}")
    return host.removeprefix("[").removesuffix("]"), int(port)


def _join(path: str, key: object) -> str:
    return f"{path}.{key}" if path else str(key)


def _nearest(word: object, known: Iterable[object]) -> str:
    hint = nearest(str(word), map(str, known), otherwise="")
    return f" ({hint})" if hint else ""


def _word(value: object) -> str:
    return "nothing" if value is None else f"{value!r:.60}"
