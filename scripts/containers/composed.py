"""Translates services of deploy/compose.yaml into podman's options, so that the tested deployment is the released one.

Where a service runs Debian's package instead of its vendor's image, the user and folders differ; ``services`` has
those. Starts nothing.
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
"""Keys that are not translated: images are built here or Debian's, the network is a separate namespace, and a container
that exits is a failure.
"""

BOUNDED_BY_GROUPS = {"mem_limit": "--memory", "pids_limit": "--pids-limit"}
VARIABLE = re.compile(r"\$\{(\w+)(?::[-?]([^}]*))?\}")


def command(name: str) -> list[str]:
    """Return the arguments of a service's program."""
    return [str(word) for word in SERVICES[name].get("command", ())]


def stop_s(name: str) -> int:
    """Return the seconds that a service has to exit; compose's default if compose.yaml sets none."""
    return int(str(SERVICES[name].get("stop_grace_period", "10s")).removesuffix("s"))


def options(name: str, local: Path, data: Path, variables: Mapping[str, str], groups: bool) -> Iterator[str]:
    """Yield podman's options for a service whose configuration is in ``local`` and whose volumes are in ``data``.

    ``groups`` is whether podman can limit memory and processes on this machine. Raises Failed if compose.yaml uses a
    key that is not supported here.
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
                raise Failed(
                    f"deploy/compose.yaml sets {key} for {name}, which scripts/containers/composed.py does not support"
                )
            case _:
                pass


def filled(text: str, variables: Mapping[str, str]) -> str:
    """Return a value with its variables replaced, by the defaults in the text where ``variables`` has none."""
    return VARIABLE.sub(lambda found: variables.get(found[1], found[2] or ""), text)


def volume(mount: Mapping[str, Any], local: Path, data: Path) -> str:
    """Return the option that mounts a configuration file, or a folder of ``data`` in place of a volume."""
    source = filled(mount["source"], {"PARLEY_LOCAL": str(local)})
    where = data / source if mount["type"] == "volume" else (DEPLOY / source).resolve()
    return f"--volume={where}:{mount['target']}" + (":ro" if mount.get("read_only") else "")


def volumes(name: str, data: Path, user: int) -> None:
    """Create the folders that replace a service's volumes, owned by the user that it runs as."""
    for mount in SERVICES[name].get("volumes", ()):
        if mount["type"] == "volume":
            (data / mount["source"]).mkdir(parents=True, exist_ok=True)
            os.chown(data / mount["source"], user, -1)
