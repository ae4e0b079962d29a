"""What deploy/compose.yaml says of a service, as podman's options: the deployment that is tried is the one that ships.

Where a service's image is Debian's instead of its makers' own, its user and its folders are other ones: ``services``
has those. Knows no machine and starts nothing.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from scripts.containers.machine import ROOT, Failed

DEPLOY = ROOT / "deploy"
SERVICES: dict[str, dict[str, Any]] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))["services"]
NOT_HERE = {"image", "build", "command", "ports", "networks", "network_mode", "depends_on", "restart", "logging"}
"""What podman is not told: images are built or Debian's, the network is a namespace of its own, and a container that
ends is a failure."""

BOUNDED_BY_GROUPS = {"mem_limit": "--memory", "pids_limit": "--pids-limit"}
VARIABLE = re.compile(r"\$\{(\w+)(?::[-?]([^}]*))?\}")


def command(name: str) -> list[str]:
    """The arguments of a service's program."""
    return [str(word) for word in SERVICES[name].get("command", ())]


def stop_s(name: str) -> int:
    """The seconds that a service has to end by itself; compose's own default where none are named."""
    return int(str(SERVICES[name].get("stop_grace_period", "10s")).removesuffix("s"))


def options(name: str, local: Path, data: Path, variables: Mapping[str, str], groups: bool) -> Iterator[str]:
    """podman's options for a service, with the configuration in ``local``, and its volumes in ``data``.

    ``groups`` is whether this machine's podman can bound memory and processes. Raises Failed where compose.yaml says
    something of a service that is not understood here.
    """
    for key, value in SERVICES[name].items():
        match key:
            case "read_only" | "init":
                yield f"--{key.replace('_', '-')}"
            case "cap_drop" | "cap_add" | "tmpfs":
                yield from (f"--{key.replace('_', '-')}={one.lower() if one == 'ALL' else one}" for one in value)
            case "security_opt":
                yield from (f"--security-opt={one.removesuffix(':true')}" for one in value)
            case "environment":
                yield from (f"--env={one}={filled(str(said), variables)}" for one, said in value.items())
            case "volumes":
                yield from (volume(one, local, data) for one in value)
            case "ulimits":
                yield from (f"--ulimit={one}={most}:{most}" for one, most in value.items())
            case "stop_grace_period":
                yield f"--stop-timeout={stop_s(name)}"
            case "mem_limit" | "pids_limit":
                if groups:
                    yield f"{BOUNDED_BY_GROUPS[key]}={filled(str(value), variables)}"
            case _ if key not in NOT_HERE:
                raise Failed(f"deploy/compose.yaml says {key} of {name}, which scripts/containers/composed.py cannot")
            case _:
                pass


def filled(text: str, variables: Mapping[str, str]) -> str:
    """A value with its variables, or the defaults that stand beside their names."""
    return VARIABLE.sub(lambda found: variables.get(found[1], found[2] or ""), text)


def volume(mount: Mapping[str, Any], local: Path, data: Path) -> str:
    """A file of the configuration, or a folder of ``data`` in place of a volume's."""
    source = filled(mount["source"], {"PARLEY_LOCAL": str(local)})
    where = data / source if mount["type"] == "volume" else (DEPLOY / source).resolve()
    return f"--volume={where}:{mount['target']}" + (":ro" if mount.get("read_only") else "")


def volumes(name: str, data: Path, user: int) -> None:
    """Make the folders that stand for a service's volumes, for the user that it runs as."""
    for mount in SERVICES[name].get("volumes", ()):
        if mount["type"] == "volume":
            (data / mount["source"]).mkdir(parents=True, exist_ok=True)
            os.chown(data / mount["source"], user, -1)
