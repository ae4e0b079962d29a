"""Tell which kernels ran on a GPU as they are written: ``ran.toml`` has what each of them was when it did.

    python -m tests.worker.kernels.ran [COMMIT]

Prints that table, of this tree or of a commit. Where all of `make gpu` has passed on a GPU, its lines are those of
``ran.toml``. A comment, a docstring or a line's break changes nothing. Needs no Triton.
"""

from __future__ import annotations

import ast
import hashlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[3]
FOLDER = "engine/worker/kernels"


def written(name: str, source: str) -> Iterator[tuple[str, str]]:
    """The kernels of a file, and what calls them on the device: their names, and the print of what each computes."""
    for one in ast.parse(source).body:
        if isinstance(one, ast.FunctionDef) and any("jit" in ast.unparse(mark) for mark in one.decorator_list):
            if ast.get_docstring(one) is not None:
                del one.body[0]
            yield f"{name}.{one.name}", hashlib.sha256(ast.unparse(one).encode()).hexdigest()[:16]


def here() -> dict[str, str]:
    """Those of this tree."""
    files = sorted((ROOT / FOLDER).glob("*.py"))
    return dict(one for path in files for one in written(path.stem, path.read_text(encoding="utf-8")))


def at(commit: str) -> dict[str, str]:
    """Those of a commit. Raises CalledProcessError."""

    def git(*words: str) -> str:
        return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout

    names = git("ls-tree", "--name-only", commit, f"{FOLDER}/").split()
    return dict(one for name in names for one in written(Path(name).stem, git("show", f"{commit}:{name}")))


if __name__ == "__main__":
    for name, found in (at(sys.argv[1]) if len(sys.argv) > 1 else here()).items():
        print(f'"{name}" = "{found}"')
