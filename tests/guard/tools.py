"""The tools that some tests need and a machine may lack: a test says by a marker of that name that it needs one."""

from __future__ import annotations

import os
import shutil
import subprocess
from importlib.util import find_spec
from pathlib import Path

PROGRAMS = {
    "chromium": ("chromium", "chromium-browser", "google-chrome"),
    "node": ("node",),
    "gpu": ("nvidia-smi",),
    "nginx": ("nginx",),
    "haproxy": ("haproxy",),
    "namespaces": ("unshare",),
    "faketime": ("faketime",),
}
"""Each tool, and the programs of which one is enough."""
MODULES = {"triton": "triton"}
"""The tools that are modules of Python."""
TOOLS = (*PROGRAMS, *MODULES)
WEIGHTS = "weights"
"""Stands in PARLEY_REQUIRE for the weights of real models, which `tests/real` looks for."""
REQUIRED = frozenset(filter(None, os.environ.get("PARLEY_REQUIRE", "").split(",")))
"""The tools without which a test fails. Without others it is skipped."""
NAMESPACES = ("unshare", "-rmnpf", "--kill-child", "--mount-proc")
"""Runs a command where it is root, and its mounts, its network and its processes are its own."""

WEB = Path(__file__).parents[2] / "web"
INSTALLED = WEB / "node_modules" / ".package-lock.json"
"""What npm writes last: without it Node has neither the page's compiler nor the browser's driver."""


def missing(tool: str) -> str | None:
    """Why tests that need a tool can't run here; None if they can."""
    if tool in MODULES:
        return None if find_spec(MODULES[tool]) else f"{tool} is not installed (`make kernels` brings it, on Linux)"
    programs = PROGRAMS[tool]
    if not any(map(shutil.which, programs)):
        return f"{tool} is not installed (looked for {', '.join(programs)})"
    if tool == "node" and not INSTALLED.is_file():
        return "node has not got the page's packages (`make test` fetches them with npm; or: cd web && npm ci)"
    if tool == "namespaces" and subprocess.run([*NAMESPACES, "true"], capture_output=True).returncode:
        return f"this user may make no namespaces (`{' '.join(NAMESPACES)} true` fails)"
    return None
