"""What `make containers` starts is what deploy/compose.yaml says: its options, as podman takes them."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from scripts.containers import composed, services
from scripts.containers.machine import Failed


def told(name: str, tmp_path: Path, groups: bool = True) -> list[str]:
    return list(composed.options(name, tmp_path / "local", tmp_path / "data", {"PARLEY_NAME": "here"}, groups))


def test_every_service_but_grafana_is_started() -> None:
    assert services.PROGRAMS.keys() == composed.SERVICES.keys() - {"grafana"}


@pytest.mark.parametrize("name", services.PROGRAMS)
def test_what_locks_a_service_locks_the_one_that_is_tried(name: str, tmp_path: Path) -> None:
    assert {"--read-only", "--cap-drop=all", "--security-opt=no-new-privileges"} <= set(told(name, tmp_path))


def test_parley_has_its_bounds_its_files_and_its_time_to_drain(tmp_path: Path) -> None:
    found = told("parley", tmp_path)
    assert {"--init", "--tmpfs=/tmp", "--ulimit=nofile=8192:8192"} <= set(found)
    assert f"--volume={tmp_path}/local/keys:/etc/parley/keys:ro" in found
    assert f"--volume={tmp_path}/data/parley:/var/lib/parley" in found
    assert f"--stop-timeout={services.STOP_S}" in found
    groups = {"--memory=4g", "--pids-limit=512"}
    assert groups <= set(found)
    assert not groups & set(told("parley", tmp_path, groups=False)), "podman refuses them without control groups"
    assert composed.command("parley") == ["serve", "/etc/parley/parley.yaml"]


def test_variables_and_files_of_the_repository_are_filled_in(tmp_path: Path) -> None:
    found = told("caddy", tmp_path)
    assert "--env=PARLEY_NAME=here" in found
    assert f"--volume={composed.DEPLOY}/Caddyfile:/etc/caddy/Caddyfile:ro" in found
    assert composed.filled("${A:-1}g ${B:?say} ${C}", {"B": "2"}) == "1g 2 "


def test_volumes_are_folders_of_the_services_user(tmp_path: Path) -> None:
    composed.volumes("parley", tmp_path, os.getuid())
    assert [path.name for path in tmp_path.iterdir()] == ["parley"]


def test_what_is_not_understood_is_not_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(composed.SERVICES, "caddy", {"privileged": True})
    with pytest.raises(Failed, match="sets privileged for caddy"):
        told("caddy", tmp_path)
