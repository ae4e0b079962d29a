"""A worker in an environment of its own, which has what a worker imports, what its stage imports, and nothing else."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from importlib.metadata import files, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

import engine
from engine import ConfigError, Engine, Message, Request, TextPart, describe, parse_config
from engine.chunk import Text
from engine.core import IN_WRITING
from engine.ipc.interpreter import NEEDED
from engine.ipc.protocol_version import ANOTHER
from tests.contracts.test_launchers import no_descriptor_left
from tests.engine.worker.llm.fake_vllm import write_checkpoint, write_vllm

BESIDE_VLLM = [
    re.split("[><=]", line)[0]
    for line in (Path(__file__).parents[2] / "scripts" / "vllm.txt").read_text().splitlines()
    if not line.startswith("#")
]
"""What `make vllm` installs beside vLLM."""
OURS = Path(engine.__file__).parent
IMPORT_NAME = OURS.parent / "parley_voice"
STAGE = """
import sys
from engine.chunk import Text, Usage, kinds
from engine.core import StageInfo
from engine.worker.streamed import Streamed


class STAGE(Streamed):
    info = StageInfo(emits=kinds(Text, Usage), feeds=kinds(Text), answers=True)

    def __init__(self, config):
        super().__init__(config)
        import only_there  # here, and not above: the server has none, and asks the class what it takes and gives
        self.said = only_there.WORDS

    async def answer(self, request, inputs):
        ours = {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names
        yield Text(" ".join([self.said, sys.prefix, *sorted(name for name in ours if not name.startswith("_"))]), 0)
        yield Usage()
"""


def linked(site: Path, package: str) -> None:
    """Have an environment see a package of ours."""
    here = Path(sysconfig.get_path("platlib"))
    for name in {file.parts[0] for file in files(package) or ()} - {"..", "__pycache__"}:
        if not (site / name).exists():  # packages may share a folder
            (site / name).symlink_to(here / name)


def whole(packages: Sequence[str]) -> set[str]:
    """Packages, and all that they need."""
    found, left = set[str](), [*packages]
    while left:
        name = left.pop()
        if name not in found:
            found.add(name)
            wanted = [Requirement(one) for one in requires(name) or ()]
            left += [one.name for one in wanted if one.marker is None or one.marker.evaluate({"extra": ""})]
    return found


def made(folder: Path, packages: Iterable[str] = NEEDED) -> Path:
    """An environment in a folder that has some packages, and a library that we lack; where its packages lie."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (site,) = folder.glob("lib/python*/site-packages")
    for package in packages:
        linked(site, package)
    (site / "only_there.py").write_text("WORDS = 'I am there.'\n")
    return site


def with_parley(site: Path) -> None:
    """Have an environment see Parley."""
    (site / "engine").symlink_to(OURS)
    (site / "parley_voice").symlink_to(IMPORT_NAME)


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    """One with Parley; its interpreter is ``bin/python``."""
    with_parley(made(tmp_path / "theirs"))
    return tmp_path / "theirs"


@pytest.fixture
def older(tmp_path: Path) -> Path:
    """One with a Parley that says something else on the wire."""
    site = made(tmp_path / "older")
    large = shutil.ignore_patterns("weights", "training", "models", "__pycache__", "*.so")
    (site / "parley_voice").symlink_to(IMPORT_NAME)
    shutil.copytree(OURS, site / "engine", ignore=large)
    wire = site / "engine" / "ipc" / "messages.py"
    wire.write_text(wire.read_text().replace("runs: tuple[str, ...]", "runs: list[str]"))
    return tmp_path / "older"


def spec(folder: Path, python: str, launcher: str = "local") -> engine.EngineSpec:
    (folder / "stage.py").write_text(STAGE)
    stages = "stages: [{use: ./stage.py, name: thinker}, {use: script.talker}, {use: script.code2wav}]"
    workers = f"workers: [{{stages: [thinker], python: {python}}}, {{stages: [talker, code2wav]}}]"
    return parse_config(f"{stages}\n{workers}\nlauncher: {launcher}", folder)


async def test_a_worker_runs_in_its_own_environment_with_the_least_that_it_imports(
    environment: Path, tmp_path: Path
) -> None:
    request = Request(id="r", session="s", messages=(Message("user", (TextPart("hello"),)),))
    async with Engine(spec(tmp_path, "theirs/bin/python")) as serving, serving.open(request) as chunks:
        said = "".join([chunk.text async for chunk in chunks if isinstance(chunk, Text)])
    assert said.startswith(f"I am there. {environment} ")
    found = {name for name in said.split()[4:] if not name.startswith("parley_stage_")}
    guard = {"network", "sitecustomize"}  # the tests' own
    assert found - guard - {"cython_runtime"} == {"engine", "parley_voice", "msgspec", "numpy", "yaml", "only_there"}


@pytest.fixture
def of_vllm(tmp_path: Path) -> Path:
    """One as `make vllm` makes it, but for vLLM: a package that stands in for it."""
    site = made(tmp_path / "vllm", whole(BESIDE_VLLM))
    with_parley(site)
    write_vllm(site)
    return tmp_path / "vllm"


async def test_a_thinker_that_vllm_runs_needs_what_make_vllm_installs_and_nothing_else(
    of_vllm: Path, tmp_path: Path
) -> None:
    checkpoint = write_checkpoint(tmp_path / "tiny")
    stages = f"stages: [{{use: llm.vllm, name: thinker, weights: {checkpoint}}}]"
    workers = f"workers: [{{stages: [thinker], python: {of_vllm}/bin/python}}]"
    request = Request(id="r", session="s", messages=(Message("user", (TextPart("hello"),)),), wants=IN_WRITING)
    async with Engine(parse_config(f"{stages}\n{workers}", tmp_path)) as serving, serving.open(request) as chunks:
        said = "".join([chunk.text async for chunk in chunks if isinstance(chunk, Text)])
    assert said == "You said: hello "


async def test_another_version_of_parley_there_is_one_sentence(older: Path, tmp_path: Path) -> None:
    async with no_descriptor_left():
        with pytest.raises(ConfigError) as caught:
            await Engine(spec(tmp_path, "older/bin/python")).__aenter__()
    assert str(caught.value) == f"the environment of {older}/bin/python {ANOTHER}"


async def test_an_interpreter_that_cannot_run_a_worker_ends_the_start(tmp_path: Path) -> None:
    async with no_descriptor_left():
        with pytest.raises(ConfigError, match=r"workers\[\]\.python: .*/none cannot be started: No such file"):
            await Engine(spec(tmp_path, "none")).__aenter__()


async def test_a_library_that_a_workers_environment_lacks_is_one_sentence(tmp_path: Path) -> None:
    told = rf"stages\[0\]: .*/stage\.py cannot be created with {sys.executable}: No module named 'only_there'"
    async with no_descriptor_left():
        with pytest.raises(ConfigError, match=told):
            await Engine(spec(tmp_path, sys.executable)).__aenter__()


async def test_a_library_at_the_top_of_a_stages_file_is_asked_for_in_its_constructor(tmp_path: Path) -> None:
    """The server looks into the file, too."""
    whole = spec(tmp_path, sys.executable)
    (tmp_path / "stage.py").write_text(f"import only_there\n{STAGE}")
    with pytest.raises(ConfigError, match=r"No module named 'only_there' \(.*line 1\); install it, or move the import"):
        describe(whole)


async def test_a_worker_of_the_servers_own_process_has_no_interpreter_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot use another interpreter"):
        await Engine(spec(tmp_path, "python", launcher="inline")).__aenter__()


def test_an_interpreters_path_is_the_configurations_and_its_links_stay(tmp_path: Path) -> None:
    (tmp_path / "python").symlink_to(sys.executable)
    assert spec(tmp_path, "./python").workers[0].python == str(tmp_path / "python")
    assert spec(tmp_path, sys.executable).workers[0].python == sys.executable
    assert spec(tmp_path, sys.executable).workers[1].python is None
    with pytest.raises(ConfigError, match=r"workers\[0\]\.python: must be the path of a Python interpreter"):
        spec(tmp_path, "''")
