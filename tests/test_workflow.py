"""The workflow and the issue forms: what they name is there. Their schemas are others' (`make containers` has them)."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest
import typer
import yaml

from app.cli import cli
from scripts.containers.lint import SCHEMAS
from scripts.containers.machine import NEEDS
from scripts.wheel import SUPPORTED

ROOT = Path(__file__).parent.parent
GITHUB = ROOT / ".github"
WORKFLOW: dict[str, Any] = yaml.safe_load((GITHUB / "workflows" / "ci.yaml").read_text(encoding="utf-8"))
FORMS = sorted(GITHUB.glob("ISSUE_TEMPLATE/[!c]*.yaml"))


def steps(key: str, workflow: dict[str, Any] = WORKFLOW) -> list[str]:
    """What each step of each job runs, or uses."""
    return [step[key] for job in workflow["jobs"].values() for step in job["steps"] if key in step]


def parley() -> set[str]:
    """The commands of Parley."""
    return set(cast("Any", typer.main.get_command(cli)).commands)


def missing(run: str) -> Iterator[str]:
    """What a command names that is not here: targets of make, scripts, modules, commands of Parley."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(" ".join(re.findall(r"^\.PHONY: (.+)$", makefile, re.MULTILINE)).split())
    commands = parley()
    yield from (f"make {name}" for name in re.findall(r"\bmake ([a-z]+)", run) if name not in targets)
    yield from (name for name in re.findall(r"-m ([\w.]+)", run) if find_spec(name) is None)
    yield from (name for name in re.findall(r"^(\.\S+)", run) if not (ROOT / name).exists())
    yield from (f"parley {name}" for name in re.findall(r"parley parley (\w+)", run) if name not in commands)


def test_what_the_workflow_runs_is_there() -> None:
    runs = steps("run")
    assert len(runs) >= 6
    assert {run: gone for run in runs if (gone := list(missing(run)))} == {}


@pytest.mark.parametrize(
    "run",
    ["make nothing", "python -m app.no_such", ".ci/none", "docker exec parley parley sing", "make docs && make x"],
)
def test_what_is_not_there_is_found(run: str) -> None:
    assert list(missing(run))


def installed(job: str) -> set[str]:
    """The packages that a job installs."""
    runs = [step.get("run", "") for step in WORKFLOW["jobs"][job]["steps"]]
    lines = [line for run in runs for line in run.splitlines() if "apt-get install" in line]
    return {word for line in lines for word in line.split()}


def test_its_user_who_is_not_root_gets_what_ci_installs_as_root() -> None:
    script = (ROOT / ".ci" / "run").read_text(encoding="utf-8")
    programs = re.search(r"for one in ([a-z ]+); do .+ \|\| wanted", script)
    assert programs
    assert set(programs[1].split()) <= installed("test")
    asked = next(run for run in steps("run") if "sysctl" in run)
    assert all(f"{tool} " in asked or f"{tool};" in asked for tool in ("chromium", *programs[1].split()))


def test_its_containers_have_what_they_need_on_ubuntu() -> None:
    names = {"unshare": "util-linux", "ip": "iproute2"}
    assert {names.get(program, program) for program in NEEDS} - {"util-linux"} <= installed("containers")
    assert "debian-archive-keyring" in installed("containers"), "without Debian's keys mmdebstrap trusts nothing there"


def test_it_tests_the_pythons_that_the_package_takes() -> None:
    tested = set(WORKFLOW["jobs"]["test"]["strategy"]["matrix"]["python"])
    assert tested == set(SUPPORTED) - {"3.14"}, "on 3.14 the built-in model does not hear: `make wheel` tries it"


def test_a_release_waits_for_all_else_and_nothing_else_may_write() -> None:
    jobs = WORKFLOW["jobs"]
    assert set(jobs["release"]["needs"]) == jobs.keys() - {"release"}
    assert WORKFLOW["permissions"] == {"contents": "read"}
    assert [name for name, job in jobs.items() if "permissions" in job] == ["release"]
    assert all(re.fullmatch(r"actions/[\w-]+@v\d+", one) for one in steps("uses"))


@pytest.mark.parametrize("path", FORMS, ids=lambda path: path.stem)
def test_a_form_asks_for_what_a_command_prints(path: Path) -> None:
    form = yaml.safe_load(path.read_text(encoding="utf-8"))
    ids = [part["id"] for part in form["body"]]
    assert len(set(ids)) == len(ids)
    assert any(part.get("validations", {}).get("required") for part in form["body"])
    assert set(re.findall(r"`parley (\w+)", path.read_text(encoding="utf-8"))) <= parley()


def test_every_file_of_github_has_a_schema() -> None:
    files = {path.relative_to(ROOT).as_posix() for path in GITHUB.rglob("*.y*ml")}
    assert {name for name in SCHEMAS if name.startswith(".github")} == files
