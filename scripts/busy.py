"""Run a target of make on a machine that has other work to do, fewer cores, or not all of its programs.

    python -m scripts.busy [--loops 2] [--cores 1] [--without chromium,node] TARGET [VARIABLE=VALUE ...]

Ends with make's exit code. Options of make's own stand behind ``--``. Knows no target.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Generator
from contextlib import contextmanager
from pathlib import Path

from tests.guard import tools

ROOT = Path(__file__).resolve().parent.parent
PROGRAMS = {**tools.PROGRAMS, "node": ("node", "nodejs", "npm", "npx")}
"""The programs of a tool; what is not in here is the name of one program."""
LOOP = "import os, sys\nwhile os.getppid() == int(sys.argv[1]): pass"


def main(arguments: list[str]) -> int:
    """Run what was asked for; the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--loops", type=int, default=0, metavar="N", help="processes that compute beside it")
    parser.add_argument("--cores", type=int, metavar="N", help="how many cores it and the loops may have (Linux)")
    parser.add_argument("--without", default="", metavar="TOOL,...", help="tools that it does not find in its PATH")
    parser.add_argument("make", nargs="+", metavar="TARGET", help="what make is told")
    args = parser.parse_args(arguments)
    if args.cores:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[: args.cores])
    names = {name for tool in args.without.split(",") for name in PROGRAMS.get(tool, (tool,)) if name}
    with tempfile.TemporaryDirectory() as folder, busy(args.loops):
        path = without(names, os.environ["PATH"], Path(folder))
        command = ["make", "--no-print-directory", *args.make]
        return subprocess.run(command, cwd=ROOT, env=os.environ | {"PATH": path}).returncode


@contextmanager
def busy(loops: int) -> Generator[None]:
    """Compute beside what is done in here. A loop ends with this process, however that ends."""
    command = [sys.executable, "-c", LOOP, str(os.getpid())]
    running = [subprocess.Popen(command, start_new_session=True) for _ in range(loops)]
    try:
        yield
    finally:
        for one in running:
            one.kill()
            one.wait()


def without(names: Collection[str], path: str, room: Path) -> str:
    """A PATH in which none of the programs is found: a folder that has one is replaced, in ``room``, by links to
    everything else that it has. A program that finds its files by its own place keeps it in all other folders."""
    folders = path.split(os.pathsep)
    for n, folder in enumerate(folders):
        if not any(shutil.which(name, path=folder) for name in names):
            continue
        folders[n] = str(room / str(n))
        os.mkdir(folders[n])
        for one in Path(folder).iterdir():
            if one.name not in names:
                Path(folders[n], one.name).symlink_to(one.absolute())
    return os.pathsep.join(folders)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
