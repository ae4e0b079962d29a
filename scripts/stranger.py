"""Time a new user's path to the first spoken answer, and measure its downloads.

    python -m scripts.stranger [WAY ...]

clone      `git clone`, `make serve`, and a spoken question
wheel      a Debian root with only Python, the wheel from pip, and a spoken question (root; mmdebstrap)
laptop     a clone with the extra `local`: llama.cpp's server with the tests' tiny model as the language model
container  the image built with buildah on that Debian, podman, and a spoken question (root; needs what
           `make containers` needs)

pip's cache is not used. Sizes are those of the downloaded Debian and pip packages, from a network (with its speed) or
from a local folder that pip's configuration names. Each way ends with its total time and download size. Without
arguments, the first three run.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path

from app.client import connect
from app.media.audio import decode_audio
from engine.audio.resampler import resample
from scripts import wheel
from scripts.containers import images
from scripts.containers.__main__ import FOLDER
from scripts.containers.machine import Machine, call
from tests.conformance import tiny_llm

ROOT = Path(__file__).resolve().parent.parent
QUESTION = ROOT / "tests" / "data" / "spoken" / "in_060.ogg"
LINE = re.compile(r"^(\d{4}-\S+T[\d:]+,\d{3}) +(.*)$", re.MULTILINE)
FETCHED = re.compile(r"(Downloading|Processing) (\S+)(?: \(([\d.]+) (kB|MB|GB)\))?")
PATIENCE_S = 1800.0  # `make serve` installs first
ENV = ("PATH=/usr/bin:/bin", "HOME=/root", "PIP_NO_CACHE_DIR=1")


@dataclass(frozen=True)
class Fetched:
    """Downloads of a step, as text and in MB."""

    said: str
    mb: float

    def __str__(self) -> str:
        return self.said


Step = tuple[str, float, str | Fetched]
"""Name, seconds, and a remark or its downloads."""


def main(names: list[str]) -> int:
    """Run the named ways, or the first three, and print their steps."""
    for name in names or list(WAYS)[:3]:
        in_all_s = in_all_mb = 0.0
        print(f"{name}:", flush=True)
        with tempfile.TemporaryDirectory(prefix="stranger-") as folder:
            try:
                for what, seconds, more in WAYS[name](Path(folder)):
                    print(f"  {what:<34} {seconds:6.1f} s  {more}", flush=True)
                    in_all_s += seconds
                    in_all_mb += more.mb if isinstance(more, Fetched) else 0.0
            except subprocess.CalledProcessError as error:
                sys.exit((error.stderr or b"").decode() or str(error))
        print(f"  {'in all':<34} {in_all_s / 60:6.1f} min  {in_all_mb:.0f} MB fetched", flush=True)
    return 0


def clone(folder: Path) -> Iterator[Step]:
    place = folder / "parley"
    yield timed("git clone", lambda: cloned(place))
    log = folder / "pip.log"
    port = free_port()
    begun_s = time.monotonic()
    with wheel.serving(["make", "serve", f"PORT={port}"], place, PATIENCE_S, fresh(log)):
        yield "make serve, until it is ready", time.monotonic() - begun_s, fetched(log)
        yield answered(port)


def in_debian(folder: Path) -> Iterator[Step]:
    root, log = folder / "root", folder / "root" / "pip.log"
    apt = folder / "apt.log"

    def made() -> Fetched:
        images.debian(root, images.BASE, apt)
        return of_debian(apt)

    yield timed("an empty Debian with Python", made)
    built = wheel.build(folder, sys.executable)
    shutil.copy(built, root)
    shutil.copy(ROOT / "constraints.txt", root)
    (root / "etc" / "pip.conf").write_text("[global]\n" + "".join(f"{line}\n" for line in images.pip_lines()))
    mounts = [("/etc/resolv.conf", "/etc/resolv.conf"), *images.pip_mounts()]
    port = free_port()
    with mounted(root, mounts):
        inside = ["chroot", str(root), "env", "-i", *ENV, "sh", "-euc"]
        pip = f"/parley/bin/pip install -q --progress-bar off --log /pip.log -c /constraints.txt /{built.name}"
        install = f"python3 -m venv /parley && {pip}"

        def installed() -> Fetched:
            call([*inside, install], 1800)
            return fetched(log, root)

        yield timed("pip install of the wheel", installed)
        begun_s = time.monotonic()
        serve = [*inside, f"cd /root; exec /parley/bin/parley serve --port {port}"]
        with wheel.serving(serve, folder, PATIENCE_S):
            yield "parley serve, until it is ready", time.monotonic() - begun_s, ""
            yield answered(port)


def laptop(folder: Path) -> Iterator[Step]:
    place, log, port = folder / "parley", folder / "pip.log", free_port()
    model = tiny_llm.model_file()  # stands in for a downloaded model
    yield timed("git clone", lambda: cloned(place))
    install = ["sh", "scripts/setup.sh", ".venv", "local"]

    def installed() -> Fetched:
        subprocess.run(install, cwd=place, env=fresh(log), check=True, capture_output=True)
        return fetched(log)

    yield timed("scripts/setup.sh .venv local", installed)
    begun_s = time.monotonic()
    with tiny_llm.served(model) as address:
        thinker = f"openai:tiny@{address}/v1"
        serve = [".venv/bin/parley", "serve", "--thinker", thinker, "--port", str(port)]
        with wheel.serving(serve, place, PATIENCE_S, fresh(log)):
            size = model.stat().st_size / 1e6
            yield "llama.cpp's server, and parley", time.monotonic() - begun_s, f"a model of {size:.1f} MB"
            yield answered(port)


def container(folder: Path) -> Iterator[Step]:
    """Use the folder of `make containers`, which is emptied first."""
    trial = [sys.executable, "-m", "scripts.containers"]
    call([*trial, "--clean"], 300)
    FOLDER.mkdir(parents=True)
    here = Machine(FOLDER)

    def root(name: str, packages: str) -> Fetched:
        images.imported(here, name, packages)
        return of_debian(images.root_log(here, name))

    def built() -> Fetched:
        size = images.build(here, None)
        wheels = fetched(images.pip_log(here))
        return Fetched(f"{wheels}; the image takes {size} MB", wheels.mb)

    yield timed("an empty Debian with Python", lambda: root("parley-base", images.BASE))
    yield timed("one with a proxy, for the trial", lambda: root("parley-services", images.SERVICES))
    yield timed("the image, by buildah", built)
    yield timed("deployed, asked aloud, and ended", lambda: call([*trial, "--built", "--only", "deployment"], 1200))


WAYS: dict[str, Callable[[Path], Iterator[Step]]] = {
    "clone": clone,
    "wheel": in_debian,
    "laptop": laptop,
    "container": container,
}


def timed(what: str, work: Callable[[], str | Fetched]) -> Step:
    begun_s = time.monotonic()
    more = work()
    return what, time.monotonic() - begun_s, more


def cloned(place: Path) -> Fetched:
    """Clone this repository with git's file protocol, one commit deep."""
    call(["git", "clone", "--quiet", "--depth=1", f"file://{ROOT}", str(place)], 300)
    mb = sum(file.stat().st_size for file in (place / ".git").rglob("*.pack")) / 1e6
    return Fetched(f"{mb:.0f} MB", mb)


def of_debian(log: Path) -> Fetched:
    mb = images.debian_mb(log)
    return Fetched(f"{mb:.0f} MB of Debian's packages and their lists", mb)


def fresh(log: Path) -> dict[str, str]:
    """Return an environment in which pip writes a log and does not use its cache."""
    return {**os.environ, "PIP_LOG": str(log), "PIP_NO_CACHE_DIR": "1"}


def fetched(log: Path, root: Path = Path("/")) -> Fetched:
    """Return the packages in pip's log in MB: from the network, and from folders."""
    lines = [(datetime.fromisoformat(at), text) for at, text in LINE.findall(log.read_text(errors="replace"))]
    network = folders = seconds = 0.0
    for (at, text), (then, _) in pairwise(lines):
        if (found := FETCHED.match(text)) is None:
            continue
        verb, what, size, unit = found.groups()
        if verb == "Downloading" and size:
            network += float(size) * images.UNITS[unit]
            seconds += (then - at).total_seconds()
        elif what.endswith((".whl", ".gz")):
            file = root / what.removeprefix("file://").lstrip("/")
            folders += file.stat().st_size / 1e6 if file.is_file() else 0.0
    speed = f" at {network / seconds:.0f} MB/s" if seconds else ""
    said = f"{network:.0f} MB of packages from a network{speed}, {folders:.0f} MB from folders"
    return Fetched(said, network + folders)


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


@contextmanager
def mounted(root: Path, files: Sequence[tuple[str, str]]) -> Generator[None]:
    """Bind-mount /dev, /proc and files of this machine into a root for the duration of the block."""
    places = [("/dev", "/dev"), ("/proc", "/proc"), *files]
    done: list[Path] = []
    try:
        for source, where in places:
            place = root / where.lstrip("/")
            if Path(source).is_dir():
                place.mkdir(parents=True, exist_ok=True)
            else:
                place.parent.mkdir(parents=True, exist_ok=True)
                place.touch()
            call(["mount", "--bind", source, place])
            done.append(place)
        yield
    finally:
        for place in reversed(done):
            call(["umount", "-l", place])


def answered(port: int) -> Step:
    """Ask a spoken question and wait for the spoken answer."""
    return timed("a spoken question and its answer", lambda: asyncio.run(asked(f"http://127.0.0.1:{port}")))


async def asked(url: str) -> str:
    voice = resample(decode_audio(QUESTION.read_bytes(), limit_s=30), 16_000, 24_000)
    async with connect(url) as client:
        await client.speak(voice)
        client.speech_ended()
        answer = await client.answer()
    if not answer.pcm.any():
        raise SystemExit(f"no sound came: {answer.text!r}")
    return f"{len(answer.pcm) / 24_000:.1f} s of speech, the first after {1000 * (answer.ttfa_s or 0):.0f} ms"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
