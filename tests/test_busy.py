"""scripts/busy.py: what a target of make finds on a machine that is busy, has fewer cores, and lacks programs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import psutil

from scripts import busy

ROOT = Path(__file__).parent.parent
LOOK = """
import json, os, psutil, shutil, sys
above = next(one for one in psutil.Process().parents() if "scripts.busy" in one.cmdline())
print(json.dumps({
    "found": [name for name in ("node", "npx", "secret", "other") if shutil.which(name)],
    "cores": len(os.sched_getaffinity(0)),
    "loops": [one.pid for one in above.children() if "getppid" in " ".join(one.cmdline())],
    "argument": sys.argv[1],
}))
sys.exit(3)
"""


def programs(folder: Path, *names: str) -> str:
    for name in names:
        (folder / name).write_text("#!/bin/sh\n")
        (folder / name).chmod(0o755)
    return str(folder)


def test_a_target_runs_beside_loops_on_one_core_and_without_programs(tmp_path: Path) -> None:
    (tmp_path / "look.py").write_text(LOOK)
    (tmp_path / "Makefile").write_text(f"look:\n\t@{sys.executable} {tmp_path}/look.py $(WORD)\n")
    path = os.pathsep.join([programs(tmp_path, "node", "npx", "secret", "other"), os.environ["PATH"]])
    ran = subprocess.run(
        [sys.executable, "-m", "scripts.busy", "--loops", "2", "--cores", "1", "--without", "node,secret",
         "--", "-f", f"{tmp_path}/Makefile", "look", "WORD=hello"],
        cwd=ROOT, env=os.environ | {"PATH": path}, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    seen = json.loads(ran.stdout.splitlines()[0])
    assert ran.returncode == 2, "make's own code for a target that failed"
    assert (seen["found"], seen["cores"], seen["argument"]) == (["other"], 1, "hello")
    assert len(seen["loops"]) == 2
    assert not any(map(psutil.pid_exists, seen["loops"])), "they end with it"


def test_a_folder_that_has_none_of_the_programs_stays_itself(tmp_path: Path) -> None:
    has, has_none = tmp_path / "has", tmp_path / "none"
    for folder, names in ((has, ("secret", "other")), (has_none, ("third",))):
        folder.mkdir()
        programs(folder, *names)
    first, second = busy.without({"secret"}, f"{has}:{has_none}", tmp_path).split(":")
    assert (os.listdir(first), second) == (["other"], str(has_none))
