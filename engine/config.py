"""YAML to EngineSpec, strictly: an unknown key names its path and the nearest known one.

The ``server:`` section is the app's own and is passed through as it is. Knows no family and no
stage: ``engine.describe`` writes out what a model is short for, and finds who is missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, dataclass, field, fields, is_dataclass, replace
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import yaml

from engine.errors import ConfigError
from engine.nearest import nearest

Schedule = Literal["urgency", "arrival"]
_FILE = re.compile(r"(?P<file>.+\.py)(?::(?P<export>\w+))?")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSpec:
    """One worker: a process on a device that hosts one or more neighbouring stages, ``replicas`` times."""

    stages: tuple[str, ...]
    """The names of neighbouring stages that the worker hosts: what they exchange never leaves it."""
    devices: tuple[str | int, ...] = ("cpu",)
    """The devices on which its replicas compute, in turn: ``cpu``, the numbers of GPUs, or ``mps`` (Apple's)."""
    replicas: int = 1
    """The number of processes that host these stages; 0: they join from elsewhere, which needs ``cluster.listen``."""
    max_batch: int = 16
    """The most requests that one step takes, and the most that a replica holds at once."""
    threads: int = 1
    """Threads that a step may use: a large voice on a small machine needs more than one."""
    dtype: str = "float32"
    """The type in which weights are computed, where the stage has a choice: ``float32`` or
    ``bfloat16``."""
    schedule: Schedule = "urgency"
    """The order in which requests step: the one whose listener needs it most, or the one that came first (to measure
    the difference)."""
    python: str | None = None
    """The interpreter of the worker's own environment, as a path: for libraries that pin versions which the rest cannot
    have. None is the server's. A worker that joins by itself keeps the interpreter that it was started with."""
    resources: Mapping[str, float] = field(default_factory=dict[str, float])
    """Resources that a launcher asks for each replica on other machines, like ``{num_gpus: 1}``; it counts the devices
    then."""

    def device(self, replica: int) -> str:
        """Return where the ``replica``-th (from 0) computes: a device of its own, unless it is the CPU."""
        return str(self.devices[replica % len(self.devices)])

    @property
    def most(self) -> float:
        """Return how many replicas there is a device for."""
        placed = self.resources or not any(_exclusive(device) for device in self.devices)
        return math.inf if placed else len(self.devices)


@dataclass(frozen=True, slots=True, kw_only=True)
class StageSpec:
    """One stage of a pipeline: which one, and what it is made with."""

    use: str
    """A stage of a family (``nano.talker``), one by itself (``llm.openai``), or a file (``./my_stage.py``)."""
    name: str = ""
    """The pipeline's name for the stage; without one, the last part of ``use``."""
    weights: str | None = None
    """A folder, a hub id, or a model of the catalogue by its name; None is the stage's built-in place."""
    dtype: str | None = None
    """The type in which its weights are computed; None: the worker's."""
    max_batch: int | None = None
    """The most requests that one step takes, and that a replica holds at once; None: the worker's."""
    from_: str | None = None
    """The stage that it reads from; None is the nearest one before it that feeds what it takes."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The stage's own settings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatSpec:
    """The interval at which a worker reports that it lives, and the silence after which it is given up."""

    interval_s: float = 0.2
    """Seconds between two reports of a worker that it lives."""
    timeout_s: float = 1.0
    """A worker whose steps take longer is given five of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSpec:
    """The address where workers from elsewhere may join; without ``listen`` none may."""

    listen: str | None = None
    """HOST:PORT, port 0 takes any free one."""
    token_file: str | None = None
    """The secret that a worker must know. Made anew at every start if the file is not there, and removed at the end."""
    address: str | None = None
    """The address of the cluster on which a launcher places workers; None is the one that this machine is part of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSpec:
    """The number of codec frames that go to code2wav at a time: the first chunk, its growth, and where it settles."""

    first: int = 1
    """Codec frames of an answer's first chunk: one is heard soonest."""
    growth: float = 1.5
    """The factor by which each chunk is larger than the one before. No steeper than the voice is faster than real
    time."""
    steady: int = 25
    """Codec frames of a chunk once it has grown. Larger ones cost less, and a barge-in throws away more."""
    hurry: bool = True
    """Whether a chunk is cut short when its listener would run dry; without it, every answer has the same chunks."""

    def size(self, count: int) -> int:
        """Frames of the ``count``-th chunk, from 0."""
        ramp = math.log(self.steady / self.first, self.growth) if self.growth > 1 else math.inf
        return self.steady if count >= ramp else min(self.steady, math.ceil(self.first * self.growth**count))


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSpec:
    """Everything the engine needs to know before it starts: the ``stages`` of a pipeline, or a ``model``, which is
    short for all stages of a family."""

    model: str | None = None
    """A family of stages by its name, like ``nano``, in the place of ``stages``."""
    name: str | None = None
    """The pipeline's name for clients; None: the model's name."""
    stages: tuple[StageSpec, ...] = ()
    """The stages of a pipeline, in the order in which they read from one another."""
    workers: tuple[WorkerSpec, ...] = ()
    """The workers; without any, ears and blocking stages have a worker of their own each, and the other stages share
    one."""
    weights: str | None = None
    """The weights of a ``model``: a folder or a hub id; None is the family's built-in place."""
    balance: Literal["least_queue", "round_robin", "random"] = "least_queue"
    """The choice of a replica for a request that has none yet: the one with the fewest leases and waiting requests,
    each in turn, or any."""
    chunks: ChunkSpec = ChunkSpec()
    """The codec frames that go to the voice's last stage at a time: see "Chunks"."""
    queue: int = 64
    """Requests that may wait for a slot of a stage; one more is refused."""
    stall_s: float = 30.0
    """A request that makes no progress for so long is ended."""
    empty_s: float = 0.8
    """Seconds that a request waits for a stage that has no replica left: a lost worker may be back by then."""
    start_s: float = 300.0
    """A worker that is not ready after so long is given up."""
    drain_s: float = 30.0
    """Seconds that a worker which is to leave may go on with the requests it has."""
    heartbeat: HeartbeatSpec = HeartbeatSpec()
    """The reports by which a worker shows that it lives: see "Heartbeat"."""
    cluster: ClusterSpec = ClusterSpec()
    """Workers on other machines: see "Cluster"."""
    launcher: str = "local"
    """The place where workers run: ``local`` processes, ``inline`` in the server's own process (for tests), or
    ``ray``."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of a ``model``: the family's own settings."""
    server: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The server's own settings: see its page."""

    @property
    def title(self) -> str:
        """Return the name that people read before the model has been loaded."""
        return self.name or self.model or "+".join(stage.use for stage in self.stages)


def load_config(path: str | Path) -> EngineSpec:
    """Read a deployment's YAML file. Raises ConfigError in one sentence."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ConfigError(f"{path}: cannot read the configuration: {reason}") from None
    try:
        return parse_config(text, Path(path).parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {error}") from None


def parse_config(text: str, folder: Path | None = None) -> EngineSpec:
    """The spec that a YAML text describes; the files that it names (stages, interpreters) lie from ``folder`` on."""
    try:
        tree = yaml.load(text, Loader=_Loader)
    except yaml.MarkedYAMLError as error:
        line = f"line {error.problem_mark.line + 1}: " if error.problem_mark else ""
        raise ConfigError(f"not valid YAML: {line}{' '.join(str(error.problem).split())}") from None
    except (yaml.YAMLError, ValueError, OverflowError, RecursionError) as error:  # an impossible date is a ValueError
        raise ConfigError(f"not valid YAML: {' '.join(str(error).split())}") from None
    spec: EngineSpec = build(EngineSpec, tree, "")
    _check(spec)
    here = folder or Path()
    workers = tuple(replace(one, python=one.python and str(_path(here, one.python))) for one in spec.workers)
    return replace(spec, stages=tuple(_named(stage, here) for stage in spec.stages), workers=workers)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, but a key that is there twice is a mistake, not the last one's say."""

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen: set[object] = set()
        for key, _ in node.value:
            if isinstance(key, yaml.ScalarNode) and key.tag != "tag:yaml.org,2002:merge":
                if key.value in seen:
                    raise ConfigError(f"line {key.start_mark.line + 1}: the key {key.value!r} is there twice")
                seen.add(key.value)
        return super().construct_mapping(node, deep)


def build(kind: Any, value: Any, path: str) -> Any:
    """``value`` as a ``kind``: dataclasses from mappings, tuples from lists, plain types as they are."""
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
                f"{path}: {value!r} is none of {', '.join(map(str, arguments))}{_nearest(value, arguments)}"
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
    names = {name.removesuffix("_"): name for name in hints}  # `from` is a word of Python's
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
    if not 1 <= spec.chunks.first <= spec.chunks.steady:
        raise ConfigError("chunks.first: must be at least 1 and at most chunks.steady")
    if not 1 <= spec.chunks.growth < math.inf:
        raise ConfigError("chunks.growth: must be a number from 1")
    for name in ("queue", "stall_s", "start_s"):
        if not (0 < getattr(spec, name) < math.inf):
            raise ConfigError(f"{name}: must be above 0")
    for name in ("empty_s", "drain_s"):
        if not (0 <= getattr(spec, name) < math.inf):
            raise ConfigError(f"{name}: must not be below 0")
    if not 0 < spec.heartbeat.interval_s <= spec.heartbeat.timeout_s / 2 < math.inf:
        raise ConfigError("heartbeat.interval_s: must be above 0 and at most half of heartbeat.timeout_s")
    if spec.cluster.listen is not None:
        address_of(spec.cluster.listen, "cluster.listen")
    if (spec.cluster.listen is None) != (spec.cluster.token_file is None):
        raise ConfigError("cluster: listen and token_file go together")
    _check_devices(spec.workers)


def _check_stages(spec: EngineSpec) -> None:
    if (spec.model is None) == (not spec.stages):
        both = "both are there" if spec.stages else "neither is"
        raise ConfigError(f"stages: a deployment needs either stages or model, which is short for a family's; {both}")
    for key in ("weights", "options") if spec.stages else ():
        if getattr(spec, key):
            raise ConfigError(f"{key}: belongs to a stage: write it as stages[…].{key}")
    for i, stage in enumerate(spec.stages):
        if not stage.use:
            raise ConfigError(f"stages[{i}].use: must name a stage")
        if stage.max_batch is not None and stage.max_batch < 1:
            raise ConfigError(f"stages[{i}].max_batch: must be at least 1")


def _check_workers(spec: EngineSpec) -> None:
    seen: dict[str, int] = {}
    for i, worker in enumerate(spec.workers):
        for name in ("stages", "devices"):
            if not getattr(worker, name):
                raise ConfigError(f"workers[{i}].{name}: at least one is needed")
        for name in ("max_batch", "threads"):
            if getattr(worker, name) < 1:
                raise ConfigError(f"workers[{i}].{name}: must be at least 1")
        if worker.replicas < (0 if spec.cluster.listen else 1):
            raise ConfigError(f"workers[{i}].replicas: must be at least 1 (0 needs cluster.listen)")
        if worker.python == "":
            raise ConfigError(f"workers[{i}].python: must be the path of a Python interpreter")
        for stage in worker.stages:
            if stage in seen:
                raise ConfigError(f"workers[{i}].stages: {stage} is hosted by workers[{seen[stage]}] already")
            seen[stage] = i


def file_of(use: str) -> tuple[str, str] | None:
    """The file that a stage lies in, and the class in it that is meant ("" for its STAGE); None where it is no file."""
    found = _FILE.fullmatch(use)
    return None if found is None else (found["file"], found["export"] or "")


def _named(stage: StageSpec, folder: Path) -> StageSpec:
    """A stage with its name, and the whole path of its file."""
    if (found := file_of(stage.use)) is None:
        return replace(stage, name=stage.name or stage.use.rpartition(".")[2])
    file, export = found
    return replace(stage, use=str(_path(folder, stage.use)), name=stage.name or export.lower() or Path(file).stem)


def _path(folder: Path, text: str) -> Path:
    """A path as the configuration has it. Links stay: an environment's interpreter is one."""
    return (folder / text).absolute()


def _check_devices(workers: tuple[WorkerSpec, ...]) -> None:
    """Check that a device other than the CPU belongs to one worker."""
    taken: dict[str, int] = {}
    for i, worker in enumerate(workers):
        if worker.replicas > worker.most:
            raise ConfigError(
                f"workers[{i}].devices: {worker.replicas} replicas need {worker.replicas} devices, one each, "
                f"not {len(worker.devices)}"
            )
        for device in worker.devices if not worker.resources else ():
            name = str(device).removeprefix("cuda:")
            if _exclusive(device) and name in taken:
                raise ConfigError(
                    f"workers[{i}].devices: {device} belongs to workers[{taken[name]}] already; "
                    "stages that share a device share a worker"
                )
            taken[name] = i


def _exclusive(device: str | int) -> bool:
    return str(device) != "cpu"


def address_of(text: str, path: str) -> tuple[str, int]:
    """``HOST:PORT`` as a pair; an IPv6 address stands in brackets. Raises ConfigError that names ``path``."""
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
