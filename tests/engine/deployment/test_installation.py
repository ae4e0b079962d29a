"""The printed install command suits the environment that prints it."""

from __future__ import annotations

import importlib.metadata
import shlex
import sys
from pathlib import Path

import pytest

from engine.deployment import installation
from engine.deployment.installation import DISTRIBUTION, ROOT, install_command, worker_install_command

REQUIREMENTS = [
    "numpy>=1.26",
    'uvloop>=0.22; platform_system != "Windows"',
    'torch<2.14,>=2.11; extra == "torch"',
    f'{DISTRIBUTION}[torch]; extra == "hf"',
    'jinja2>=3.1.6; extra == "hf"',
    'sounddevice<1,>=0.5; sys_platform == "linux" and extra == "device"',
]
"""As setuptools writes them into a wheel's metadata."""


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An environment with a wheel of Parley instead of a clone."""
    monkeypatch.setattr(installation, "ROOT", tmp_path)
    monkeypatch.setattr(importlib.metadata, "requires", lambda name: REQUIREMENTS if name == DISTRIBUTION else None)


def without_pip(monkeypatch: pytest.MonkeyPatch, uv: str | None) -> None:
    monkeypatch.setattr(installation, "_has_pip", lambda: False)
    monkeypatch.setattr(installation.shutil, "which", lambda name: uv)


def test_in_the_folder_of_the_clone_paths_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "executable", str(ROOT / ".venv" / "bin" / "python"))
    expected = ".venv/bin/python -m pip install --constraint constraints.txt --editable '.[local]'"
    assert install_command("local") == expected


def test_elsewhere_the_paths_of_the_clone_are_absolute(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    words = shlex.split(install_command("local"))
    assert words[0] == sys.executable
    assert words[-4:] == ["--constraint", f"{ROOT}/constraints.txt", "--editable", f"{ROOT}[local]"]


@pytest.mark.usefixtures("wheel")
class TestWheel:
    """The command names packages that are on the index, whether Parley is there or not."""

    def test_the_packages_of_an_extra_with_those_of_its_own_extras(self) -> None:
        assert shlex.split(install_command("hf")) == [
            *(sys.executable, "-m", "pip", "install"),
            *("torch<2.14,>=2.11", "jinja2>=3.1.6"),
        ]

    def test_a_marker_stays_with_its_requirement(self) -> None:
        assert shlex.split(install_command("device"))[4:] == ['sounddevice<1,>=0.5; sys_platform == "linux"']

    def test_uv_installs_into_an_environment_without_pip(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without_pip(monkeypatch, uv="/usr/bin/uv")
        expected = ["uv", "pip", "install", "--python", sys.executable, "torch<2.14,>=2.11"]
        assert shlex.split(install_command("torch")) == expected

    def test_pip_comes_first_where_nothing_installs_packages(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without_pip(monkeypatch, uv=None)
        first, _, second = install_command("torch").partition(" && ")
        assert shlex.split(first) == [sys.executable, "-m", "ensurepip"]
        assert shlex.split(second) == [sys.executable, "-m", "pip", "install", "torch<2.14,>=2.11"]

    def test_an_image_is_built_again(self, monkeypatch: pytest.MonkeyPatch) -> None:
        without_pip(monkeypatch, uv=None)
        monkeypatch.setattr(installation.os, "access", lambda path, mode: False)
        assert install_command("hf") == "docker build --build-arg EXTRAS=hf --tag parley ."

    def test_without_metadata_the_extra_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def requires(name: str) -> list[str]:
            raise importlib.metadata.PackageNotFoundError(name)

        monkeypatch.setattr(importlib.metadata, "requires", requires)
        assert install_command("local").endswith(f"-m pip install '{DISTRIBUTION}[local]'")

    @pytest.mark.parametrize(
        ("record", "expected"),
        [
            (
                '{"url": "file:///srv/parley_voice-9-py3-none-any.whl", "archive_info": {}}',
                "file:///srv/parley_voice-9-py3-none-any.whl",
            ),
            (None, f"{DISTRIBUTION}==9"),
        ],
        ids=["from a file", "from an index"],
    )
    def test_another_environment_gets_the_same_version(
        self, record: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        info = tmp_path / "parley_voice-9.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {DISTRIBUTION}\nVersion: 9\n")
        if record is not None:
            (info / "direct_url.json").write_text(record)
        monkeypatch.syspath_prepend(str(tmp_path))
        first, _, second = worker_install_command("/opt/vllm/bin/python", ["numpy"]).partition(" && ")
        assert first == "/opt/vllm/bin/python -m pip install numpy"
        assert second == f"/opt/vllm/bin/python -m pip install --no-deps {expected}"


def test_another_environment_gets_the_clone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    command = worker_install_command("/opt/vllm/bin/python", ["numpy", "pyyaml"])
    assert command.endswith(f"numpy pyyaml && /opt/vllm/bin/python -m pip install --no-deps --editable {ROOT}")
