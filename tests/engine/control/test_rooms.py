"""Who knows whom in the control wing: each concern in a file of its own, and no file that knows them all."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
CONTROL = ROOT / "engine" / "control"

MAY_KNOW = {
    "membership": {  # no socket, task or pool
        "engine.aio.back_off", "engine.deployment.config", "engine.control.replica_info", "engine.ipc.messages",
        "engine.ipc.processor_time",
    },
    "pool": {  # leases: no worker, no request's state
        "engine.control.balance", "engine.control.fair_queue", "engine.core", "engine.errors",
    },
    "balance": {"engine.errors"},
    "fair_queue": {"engine.errors"},
    "replica_info": {"engine.core"},
    "replica": {  # one link
        "engine.chunk", "engine.control.replica_info", "engine.core", "engine.errors", "engine.ipc.links",
        "engine.stream", "engine.ipc.messages", "engine.ipc.processor_time",
    },
    "join_listener": {  # registration: no fleet
        "engine.deployment.config", "engine.control.replica", "engine.errors", "engine.ipc.handshake",
        "engine.ipc.links", "engine.ipc.messages",
    },
}  # fmt: skip


def known(path: Path) -> set[str]:
    """The modules of ours that a file imports."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        match node:
            case ast.ImportFrom(module=str(module), names=names) if (ROOT / module.replace(".", "/")).is_dir():
                found |= {f"{module}.{name.name}" for name in names if module.startswith("engine")}
            case ast.ImportFrom(module=str(module)) if module.startswith("engine."):
                found.add(module)
            case _:
                pass
    return found


@pytest.mark.seed("A1.22", "A3.16")
@pytest.mark.parametrize("name", MAY_KNOW)
def test_a_concern_knows_what_it_needs(name: str) -> None:
    assert known(CONTROL / f"{name}.py") <= MAY_KNOW[name]


@pytest.mark.seed("A1.22")
@pytest.mark.parametrize("name", ["orchestrator", "hops"])
def test_who_follows_requests_knows_no_membership_and_no_launcher(name: str) -> None:
    strangers = ("membership", "fleet", "join_listener", "placement", "changes", "launchers")
    assert not [module for module in known(CONTROL / f"{name}.py") if module.rpartition(".")[2] in strangers]


def test_the_look_finds_what_is_there() -> None:
    assert "engine.control.membership" in known(CONTROL / "fleet.py")
