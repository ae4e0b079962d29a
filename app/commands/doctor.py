"""`parley doctor`: checks this machine for problems, and says how to solve them.

Each check returns a Finding and raises nothing. The slow one, which loads the model, comes last.
"""

from __future__ import annotations

import asyncio
import os
import resource
import shutil
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path

import psutil

import web
from app.commands import terminal
from app.commands.doctor_server import server_findings
from app.commands.finding import Finding, Level
from app.commands.sink import device_available
from app.settings import settings_of
from engine import Engine, EngineError, EngineSpec, ModelInfo, WeightsError
from engine.aio.event_loop import run

MIN_MEMORY_GB = 1.0  # memory for the server with the built-in model
MIN_DISK_GB = 1.0  # an installation, and some recordings
MIN_FILES = 1024  # a session takes a socket, a worker some pipes
DAY_S = 86_400.0
GROUPS = Path("/sys/fs/cgroup")
CONTROL_GROUPS = (
    (GROUPS / "memory.max", GROUPS / "memory.current"),
    (GROUPS / "memory" / "memory.limit_in_bytes", GROUPS / "memory" / "memory.usage_in_bytes"),
)
"""Files with a container's memory limit and usage, for both versions of control groups."""
LOOK_S = 1.0  # by then, a stage that uses another server has checked it


def doctor(spec: EngineSpec) -> bool:
    """Print every finding at once, and return whether none failed."""
    levels: list[Level] = []
    for found in examine(spec):
        terminal.finding(found.level, f"{found.subject}: {found.text}", found.step)
        levels.append(found.level)
    return "fail" not in levels


def examine(spec: EngineSpec) -> Iterator[Finding]:
    """Yield every finding, in the order in which a new user would meet the problem."""
    yield python(sys.version_info[:2])
    yield processors(os.cpu_count() or 1, psutil.getloadavg()[0])
    yield clock(time.time(), Path(__file__).stat().st_mtime)
    yield memory(free_memory())
    yield disk(Path.cwd())
    yield open_files(file_limit())
    yield from server_findings(settings_of(spec.server))
    yield page(Path(web.__file__).parent / "dist" / "index.html")
    yield speaker(device_available())
    yield from run(model(spec))


def python(version: tuple[int, int]) -> Finding:
    text = ".".join(map(str, version))
    if version == (3, 14):
        step = "to use speech, create the environment with Python 3.11, 3.12 or 3.13"
        return Finding("warn", "Python", f"{text}: the built-in model accepts only text", step)
    if (3, 11) <= version <= (3, 13):
        return Finding("ok", "Python", text)
    return Finding("fail", "Python", f"{text} is not supported", "use Python 3.11, 3.12 or 3.13")


def processors(count: int, busy: float) -> Finding:
    """Check the CPU. ``busy`` is the load average of the last minute."""
    if count < 2:
        return Finding("warn", "CPU", "one core: answers may stutter while you speak", "use two cores or more")
    if busy > count:
        return Finding("warn", "CPU", f"{count} cores, and a load of {busy:.1f}", "stop other programs")
    return Finding("ok", "CPU", f"{count} cores, load {busy:.1f}")


def clock(now_s: float, installed_s: float) -> Finding:
    """Check that this machine's time is not before this installation. Both arguments are Unix times."""
    today = time.strftime("%Y-%m-%d", time.gmtime(now_s))
    if now_s < installed_s - DAY_S:
        step = "set the clock; otherwise certificates and TURN passwords are not valid"
        return Finding("warn", "clock", f"{today} is before Parley was installed here", step)
    return Finding("ok", "clock", today)


def free_memory() -> int:
    """Return the available bytes: the machine's, or the control group's if that is less."""
    free = psutil.virtual_memory().available
    for most, taken in CONTROL_GROUPS:
        with suppress(OSError, ValueError):  # no such control group, or "max"
            free = min(free, int(most.read_text()) - int(taken.read_text()))
    return free


def memory(free_bytes: int) -> Finding:
    free_gb = free_bytes / 1e9
    if free_gb < MIN_MEMORY_GB:
        return Finding("warn", "memory", f"{free_gb:.1f} GB free", f"free {MIN_MEMORY_GB:g} GB for the server")
    return Finding("ok", "memory", f"{free_gb:.1f} GB free")


def disk(folder: Path) -> Finding:
    free_gb = shutil.disk_usage(folder).free / 1e9
    if free_gb < MIN_DISK_GB:
        return Finding("warn", "disk", f"{free_gb:.1f} GB free at {folder}", "free some disk space")
    return Finding("ok", "disk", f"{free_gb:.1f} GB free at {folder}")


def open_files(limit: int | None) -> Finding:
    if limit is not None and limit < MIN_FILES:
        step = f"run `ulimit -n {MIN_FILES}` first; otherwise many concurrent sessions will fail"
        return Finding("warn", "open files", f"at most {limit}", step)
    return Finding("ok", "open files", "no limit" if limit is None else f"at most {limit}")


def file_limit() -> int | None:
    """Return how many files a process may open; None without a limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


def page(index: Path) -> Finding:
    if index.is_file():
        return Finding("ok", "page", "built")
    return Finding("warn", "page", f"{index} is missing", "run `make web`; WebSocket clients work without it")


def speaker(missing: str | None) -> Finding:
    if missing is None:
        return Finding("ok", "loudspeaker", "found")
    return Finding("warn", "loudspeaker", missing, "the browser has its own; `say` and `ask` write files with -o")


async def model(spec: EngineSpec) -> list[Finding]:
    """Load the model as the server does, which shows more than checking the file names of its weights."""
    begun_s = time.monotonic()
    try:
        async with Engine(spec) as engine:
            took_s = time.monotonic() - begun_s
            await asyncio.sleep(LOOK_S)
            loaded = Finding("ok", "model", f"{engine.model.name} loads in {took_s:.1f} s")
            return [loaded, ears(engine.model), *elsewhere(engine.model, engine.unavailable)]
    except EngineError as error:
        return [Finding("fail", "model", f"{spec.title}: {error}", _step(spec, error))]


def _step(spec: EngineSpec, error: EngineError) -> str:
    """Return the next step for a model that does not load, if the error itself has none."""
    own = spec.weights or any(stage.all_weights for stage in spec.stages)
    built_in = isinstance(error, WeightsError) and not own
    return "`git checkout engine/weights` restores the built-in ones; or use --weights" if built_in else ""


def elsewhere(info: ModelInfo, unavailable: Mapping[str, str]) -> Iterator[Finding]:
    """Yield the model's notes for users, and its servers that are unavailable."""
    for note in info.notes:
        yield Finding("warn", "note", note)
    for stage, why in unavailable.items():
        yield Finding("fail", stage, why, "start that server, or configure another one")


def ears(info: ModelInfo) -> Finding:
    if "audio" in info.abilities:
        return Finding("ok", "ears", f"{info.name} understands speech")
    step = "use text input, or Python 3.11 to 3.13 on x86-64, ARM Linux or macOS for the built-in speech recognition"
    return Finding("warn", "ears", f"{info.name} has no speech recognition here, only text input", step)
