"""Build the wheel, and try it on each Python of this machine in the folder of a project that has packages of its own.

    python -m scripts.wheel [PYTHON ...]

For each interpreter, a fresh environment gets the wheel and its dependencies. Then, in a folder with packages called
``app``, ``engine`` and ``web``: every module is imported, `parley say` speaks, `parley serve nano` answers, a stage
file of the project answers, and the command that a message prints installs an extra. Without names it looks for the
Pythons that Parley supports, on the PATH and in pyenv, and skips the missing ones. Needs a network.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

ROOT = Path(__file__).resolve().parent.parent
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
DECOYS = ("app", "engine", "web")
PROJECT = ROOT / "examples" / "custom_stage"
EXTRA = "mcp"
"""An extra without compiled packages: every Python gets it."""
LINE = "Hello, it is a pleasure to meet you."
PATIENCE_S = 300.0  # for a busy machine: an idle one needs ten seconds
READY = b"Parley is ready"
QUESTION = "When do you open on Saturday?"
INSTALL_COMMAND = f"""
from parley_voice.engine.deployment.installation import install_command
print(install_command({EXTRA!r}))
"""
IMPORT_EVERYTHING = """
import importlib, pathlib
import parley_voice

root = pathlib.Path(parley_voice.__file__).parent
for file in root.rglob("*.py"):
    path = file.relative_to(root.parent).with_suffix("").parts
    name = ".".join(path).removesuffix(".__init__")
    if path[-1] == "__main__":
        continue
    try:
        importlib.import_module(name)
    except ModuleNotFoundError as error:  # a package of an extra
        if error.name.partition(".")[0] in ("app", "engine", "web", "parley_voice"):
            raise
"""


def main(names: list[str]) -> int:
    """Try the named or all installed interpreters. Returns 1 if one fails."""
    console, failed = Console(highlight=False), 0
    for name in names or [f"python{version}" for version in SUPPORTED]:
        python = find(name)
        if python is None:
            console.print(f"{name}: not installed")
            continue
        begun_s = time.monotonic()
        with tempfile.TemporaryDirectory() as folder:
            why = tried(python, Path(folder))
        failed += why is not None
        console.print(f"{name}: {why or 'works'} ({time.monotonic() - begun_s:.0f} s)", markup=False)
    return int(failed > 0)


def find(name: str) -> str | None:
    """Return an interpreter by name or path; pyenv's versions are looked up directly, because its shims may refuse to
    run.
    """
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = [shutil.which(name), *(str(path) for path in sorted(pyenv.glob(f"*/bin/{name}"), reverse=True))]
    return next((one for one in found if one and _works(one)), None)


def _works(python: str) -> bool:
    return subprocess.run([python, "-c", "import venv, ensurepip"], capture_output=True).returncode == 0


def tried(python: str, folder: Path) -> str | None:
    """Build, install and run the wheel with one interpreter. Returns the error, or None if it works."""
    fresh = folder / "fresh"
    pip = [str(fresh / "bin" / "pip"), "install", "--quiet", "--disable-pip-version-check"]
    try:
        subprocess.run([python, "-m", "venv", str(fresh)], check=True, capture_output=True)
        wheel = build(folder, str(fresh / "bin" / "python"))
        subprocess.run([*pip, "-c", str(ROOT / "constraints.txt"), str(wheel)], check=True, capture_output=True)
        run(fresh, strange(folder / "elsewhere"))
    except subprocess.SubprocessError as error:
        output = (getattr(error, "stderr", None) or b"").decode(errors="replace").strip().splitlines()
        return output[-1] if output else str(error)
    return None


def build(folder: Path, python: str, *options: str) -> Path:
    """Build the wheel into a folder and return its path. Raises CalledProcessError."""
    command = [python, "-m", "pip", "wheel", "--quiet", "--no-deps", *options, "--wheel-dir", str(folder), str(ROOT)]
    subprocess.run(command, check=True, capture_output=True)
    return next(folder.glob("parley_voice-*.whl"))


def strange(folder: Path) -> Path:
    """A project with a stage file and with packages that have the names of ours; importing one of them raises."""
    shutil.copytree(PROJECT, folder)
    for name in DECOYS:
        (folder / name).mkdir()
        (folder / name / "__init__.py").write_text(f"raise ImportError('this is another {name}')\n")
    return folder


def run(environment: Path, folder: Path) -> None:
    """Try every part in the folder of a project. Raises CalledProcessError or TimeoutExpired."""
    python, parley = (str(environment / "bin" / name) for name in ("python", "parley"))

    def done(*command: str) -> bytes:
        result = subprocess.run(command, cwd=folder, check=True, capture_output=True, timeout=PATIENCE_S)
        return result.stdout

    done(python, "-c", IMPORT_EVERYTHING)
    done(parley, "say", LINE, "-o", "said.wav")
    done(parley, "ask", "-c", "shop.yaml", "--text", QUESTION, "-o", "stage.wav")
    done("sh", "-c", done(python, "-P", "-c", INSTALL_COMMAND).decode())
    with serving([parley, "serve", "nano", "--port", "0"], folder, PATIENCE_S) as address:
        done(parley, "ask", "--text", "What is two plus three?", "--url", address, "-o", "served.wav")


@contextmanager
def serving(
    command: Sequence[str], folder: Path, patience_s: float, env: dict[str, str] | None = None
) -> Generator[str]:
    """Run a server, and yield its address once it is ready.

    Raises CalledProcessError or TimeoutExpired.
    """
    with subprocess.Popen(command, cwd=folder, env=env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as server:
        assert server.stderr is not None
        patience = threading.Timer(patience_s, server.kill)
        patience.start()
        try:
            said = list[bytes]()
            for line in server.stderr:
                said.append(line)
                if READY in line:
                    yield next(word for word in line.decode().split() if word.startswith("http"))
                    return
            if not patience.is_alive():
                raise subprocess.TimeoutExpired(command, patience_s)
            raise subprocess.CalledProcessError(server.wait(), command, stderr=b"".join(said))
        finally:
            patience.cancel()
            server.terminate()
            server.communicate()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
