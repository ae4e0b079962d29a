"""The indexes, proxies and certificates that pip and npm are configured with, as their own files say them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from app.pulling import registry_settings
from app.pulling.registry_settings import NPM, PYPI, RegistrySettings, npm_settings, pip_settings


@pytest.fixture(autouse=True)
def _unconfigured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who configured nothing. pip reads no file but PIP_CONFIG_FILE if that is the null device."""
    for name in list(os.environ):
        if name.lower().startswith(("pip_", "npm_config_")):
            monkeypatch.delenv(name)
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(Path, "home", lambda: tmp_path)
    monkeypatch.setattr(registry_settings, "_NPM_GLOBAL", (tmp_path / "global",))


def test_without_a_configuration_the_public_registries_are_asked() -> None:
    assert pip_settings() == RegistrySettings((PYPI,))
    assert npm_settings() == RegistrySettings((NPM,))


def test_pip_s_file_counts_and_its_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "pip.conf"
    file.write_text(
        "[global]\nindex-url = https://mirror/simple/\nextra-index-url = https://more/simple file:///packages\n"
        "proxy = http://proxy:3128\ncert = /ca.pem\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(file))
    indexes = ("https://mirror/simple", "https://more/simple")
    assert pip_settings() == RegistrySettings(indexes, "http://proxy:3128", "/ca.pem")
    monkeypatch.setenv("PIP_INDEX_URL", "https://ours/simple")
    assert pip_settings().indexes == ("https://ours/simple", "https://more/simple")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert pip_settings().indexes == ()


def test_a_machine_without_pip_has_its_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(*_: Any, **__: Any) -> None:
        raise subprocess.CalledProcessError(1, "pip")

    monkeypatch.setattr(subprocess, "run", absent)
    assert pip_settings().indexes == (PYPI,)
    monkeypatch.setenv("PIP_INDEX_URL", "https://ours/simple")
    monkeypatch.setenv("PIP_PROXY", "http://proxy:3128")
    assert pip_settings() == RegistrySettings(("https://ours/simple",), "http://proxy:3128")


def test_npm_s_files_count_and_its_environment_wins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "global").write_text('; global\nregistry=https://global/\ncafile = "/ca.pem"\n')
    assert npm_settings() == RegistrySettings(("https://global",), None, "/ca.pem")
    monkeypatch.setenv("PROXY_HOST", "proxy")
    (tmp_path / ".npmrc").write_text("registry = https://user/npm/\nhttps-proxy=http://${PROXY_HOST}:3128\n")
    assert npm_settings() == RegistrySettings(("https://user/npm",), "http://proxy:3128", "/ca.pem")
    monkeypatch.setenv("npm_config_registry", "https://ours/")
    monkeypatch.setenv("npm_config_https_proxy", "null")
    assert npm_settings() == RegistrySettings(("https://ours",), None, "/ca.pem")
