"""The index, proxy and certificates that the user configured for pip and for npm.

Neither pip nor npm has to be installed: without them, their environment variables and npm's files still count.
"""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

PYPI = "https://pypi.org/simple"
NPM = "https://registry.npmjs.org"
PIP_S = 20.0
_NPM_GLOBAL = (Path("/usr/etc/npmrc"), Path("/usr/local/etc/npmrc"), Path("/etc/npmrc"))
_PIP_COMMANDS = ("global", "download", "install", ":env:")
"""The sections of pip's configuration that apply to downloads, in order of rising precedence."""


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """How to reach a package registry."""

    indexes: tuple[str, ...]
    """Base URLs, tried in this order. Empty if the user's configuration forbids all indexes."""
    proxy: str | None = None
    ca_file: str | None = None
    """A file of trusted certificates, or None for the system's."""


def pip_settings() -> RegistrySettings:
    """Return the indexes of pip's configuration files and environment variables; the variables take precedence."""
    found = _pip_config()
    if found.get("no-index", "").lower() in ("1", "true", "yes", "on"):
        return RegistrySettings(())
    named = [found.get("index-url", PYPI), *found.get("extra-index-url", "").split()]
    indexes = tuple(url.rstrip("/") for url in named if url.startswith(("http://", "https://")))
    return RegistrySettings(indexes, found.get("proxy") or None, found.get("cert") or None)


def npm_settings() -> RegistrySettings:
    """Return npm's registry from its global file, the user's file and environment variables, in rising precedence."""
    variables = {
        name.lower().removeprefix("npm_config_").replace("_", "-"): value
        for name, value in os.environ.items()
        if name.lower().startswith("npm_config_") and value
    }
    user = Path(variables.get("userconfig") or Path.home() / ".npmrc")
    files = [*([Path(variables["globalconfig"])] if "globalconfig" in variables else _NPM_GLOBAL), user]
    found = {key: value for path in files for key, value in _npmrc(path).items()} | variables
    proxy = found.get("https-proxy") or found.get("proxy")
    given = None if proxy in (None, "", "null", "false") else proxy
    return RegistrySettings((found.get("registry", NPM).rstrip("/"),), given, found.get("cafile") or None)


def _pip_config() -> Mapping[str, str]:
    """Return pip's options by name, as printed by `pip config list`."""
    command = [sys.executable, "-P", "-m", "pip", "config", "list"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=PIP_S, check=True)
    except (OSError, subprocess.SubprocessError):  # pip is missing, or its configuration is damaged
        return _pip_environment()
    lines = [match for line in done.stdout.splitlines() if (match := re.fullmatch(r"(.+?)\.([\w-]+)=(.*)", line))]
    known = [(section, key, _literal(text)) for section, key, text in (match.groups() for match in lines)]
    return {key: value for wanted in _PIP_COMMANDS for section, key, value in known if section == wanted}


def _pip_environment() -> Mapping[str, str]:
    return {
        name.lower().removeprefix("pip_").replace("_", "-"): value
        for name, value in os.environ.items()
        if name.startswith("PIP_")
    }


def _literal(text: str) -> str:
    """Parse a value that pip prints as a Python string."""
    try:
        return str(ast.literal_eval(text))
    except (SyntaxError, ValueError):
        return text


def _npmrc(path: Path) -> Mapping[str, str]:
    try:
        lines: Iterable[str] = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {}
    pairs = [line.partition("=") for line in lines if "=" in line and not line.lstrip().startswith((";", "#"))]
    return {key.strip(): _expanded(value.strip().strip("\"'")) for key, _, value in pairs}


def _expanded(value: str) -> str:
    """Replace ${NAME} with the environment variable, as npm does."""
    return re.sub(r"\$\{(\w+)\}", lambda match: os.environ.get(match[1], match[0]), value)
