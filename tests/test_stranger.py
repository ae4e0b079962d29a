"""What the timing of a stranger's path reads from pip's log and apt's, and says in all."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from scripts import stranger
from scripts.containers import images
from scripts.containers.machine import Machine

PIP = """\
2026-01-02T03:04:05,000 Collecting numpy==2.4.0
2026-01-02T03:04:05,500   Downloading numpy-2.4.0-cp313-manylinux_2_27_x86_64.whl (16.0 MB)
2026-01-02T03:04:07,500 Collecting rich
2026-01-02T03:04:08,000   Processing {folder}/rich-1.0-py3-none-any.whl
2026-01-02T03:04:08,100   Downloading idna-3.11-py3-none-any.whl (500 kB)
2026-01-02T03:04:08,350   Downloading idna-3.11-py3-none-any.whl.metadata
2026-01-02T03:04:09,000 Installing collected packages: rich, numpy
"""
APT = """\
Get:1 http://deb.example.org/debian bookworm/main amd64 Packages [8790 kB]
Fetched 8790 kB in 12s (759 kB/s)
Need to get 29.7 MB of archives.
Get:1 http://deb.example.org/debian bookworm/main amd64 libc6 amd64 2.36-9 [2,710 kB]
Get:2 http://deb.example.org/debian bookworm/main amd64 python3 amd64 3.11 [27.0 MB]
Fetched 29.7 MB in 1s (36.7 MB/s)
Chrooting into /tmp/mmdebstrap.RByXQTiwd6/
Get:2 http://deb.example.org/debian bookworm/main amd64 python3 amd64 3.11 [27.0 MB]
Fetched 29.7 MB in 1s (36.7 MB/s)
"""
"""As apt says it, with what a process that it begins has not yet said either."""


def pip_log(folder: Path) -> str:
    (folder / "rich-1.0-py3-none-any.whl").write_bytes(bytes(3_000_000))
    return PIP.format(folder=folder)


def test_packages_of_a_network_and_of_folders_are_counted_apart(tmp_path: Path) -> None:
    log = tmp_path / "pip.log"
    log.write_text(pip_log(tmp_path))
    found = stranger.fetched(log)
    assert str(found) == "16 MB of packages from a network at 7 MB/s, 3 MB from folders"
    assert found.mb == pytest.approx(19.5)


def test_a_root_is_what_apt_fetched_for_it_each_file_once(tmp_path: Path) -> None:
    (tmp_path / "apt.log").write_text(APT)
    assert images.debian_mb(tmp_path / "apt.log") == pytest.approx(8.79 + 2.71 + 27.0)


def test_an_image_is_told_with_what_its_roots_and_its_wheels_fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def imported(machine: Machine, name: str, packages: str) -> str:
        images.root_log(machine, name).write_text(APT)
        return name

    def build(machine: Machine, base: str | None) -> int:
        images.pip_log(machine).parent.mkdir()
        images.pip_log(machine).write_text(pip_log(tmp_path))
        return 640

    def called(*command: Any) -> str:
        return ""

    monkeypatch.setattr(stranger, "FOLDER", tmp_path / "containers")
    monkeypatch.setattr(stranger, "call", called)
    monkeypatch.setattr(images, "imported", imported)
    monkeypatch.setattr(images, "build", build)
    assert stranger.main(["container"]) == 0
    said = capsys.readouterr().out.splitlines()
    assert [line.partition(" s  ")[2] for line in said[1:4]] == [
        "38 MB of Debian's packages and their lists",
        "38 MB of Debian's packages and their lists",
        "16 MB of packages from a network at 7 MB/s, 3 MB from folders; the image takes 640 MB",
    ]
    assert said[-1].endswith(" min  96 MB fetched")
