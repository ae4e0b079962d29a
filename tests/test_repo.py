"""What the repository promises: pinned dependencies, two commands, small weights, light imports, short files."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path
from types import ModuleType

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from app.commands.deployment import configurations
from benchmarks import code_size
from engine import load_config
from engine.worker.llm import vllm_engine
from tests.guard import tools as guard_tools

ROOT = Path(__file__).parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONSTRAINTS = [
    Requirement(line) for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")
]
PINS: dict[str, str] = {
    canonicalize_name(one.name): str(one.specifier).removeprefix("==")
    for one in CONSTRAINTS
    if one.marker is None or one.marker.evaluate()
}
"""The versions on this machine."""
MOST_WORDS = 45_000
"""Maximum words of all pages."""
MOST_LINES = 60
"""Maximum lines of the changelog."""


def tracked(*patterns: str) -> list[Path]:
    """The files that git knows."""
    listing = subprocess.run(["git", "ls-files", "-z", *patterns], cwd=ROOT, capture_output=True, text=True, check=True)
    return [path for name in listing.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def script(name: str) -> ModuleType:
    """A file of scripts/, as a module."""
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def test_every_dependency_is_pinned_within_what_is_allowed() -> None:
    lines = [*PROJECT["dependencies"], *(line for extra in PROJECT["optional-dependencies"].values() for line in extra)]
    for requirement in map(Requirement, lines):
        name = canonicalize_name(requirement.name)
        if name != "parley-voice" and (requirement.marker is None or requirement.marker.evaluate()):
            assert requirement.specifier.contains(PINS[name]), name
    assert PINS["torch"] == "2.13.0"


def test_what_is_installed_is_what_is_pinned() -> None:
    pins = script("pin")
    installed = pins.closure(("dev",))
    assert installed == {name: PINS[name] for name in installed}
    assert "torch" in installed
    assert "torch" not in pins.closure(())


def test_the_pins_name_no_registry_and_the_download_sizes() -> None:
    text = (ROOT / "constraints.txt").read_text()
    assert "://" not in text
    assert re.search(r"^# Downloads, in MB: base (\d+), local (\d+), dev (\d+)", text, re.MULTILINE)


def test_the_help_has_three_groups_and_every_target_and_names_the_downloads() -> None:
    groups = re.findall(r"^(\w+)\n((?:  .+\n)+)", make("help"), re.MULTILINE)
    assert [name for name, _ in groups] == ["Use", "Develop", "Maintain"]
    listed = {target for _, lines in groups for target in re.findall(r"^  ([a-z ]+?)  ", lines, re.MULTILINE)}
    phony = re.search(r"^\.PHONY: help (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    assert phony
    assert set(" ".join(listed).split()) == set(phony[1].split())
    sizes = dict(re.findall(r"(\w+) (\d+)", (ROOT / "constraints.txt").read_text().splitlines()[1]))
    for target in ("demo", "docs"):
        assert re.search(rf"^  {target} .+ {sizes[target]} MB once", make("help"), re.MULTILINE), target


def test_the_documentation_stays_short() -> None:
    words = {page: len(page.read_text(encoding="utf-8").split()) for page in tracked("*.md")}
    assert len(words) > 25
    assert sum(words.values()) <= MOST_WORDS, sorted(words.items(), key=lambda one: -one[1])[:5]
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert changelog.count("\n") <= MOST_LINES, "the changelog is one page for each release"


def make(*arguments: str) -> str:
    environment = {key: value for key, value in os.environ.items() if not key.startswith("MAKE")}
    result = subprocess.run(["make", *arguments], cwd=ROOT, capture_output=True, text=True, env=environment, timeout=60)
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_second_serve_installs_nothing_and_keeps_its_overrides(tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    venv.mkdir()
    assert "scripts/setup.sh" in make("-n", "serve", f"VENV={venv}")
    (venv / "base.stamp").touch()
    again = make("-n", "serve", f"VENV={venv}", "PORT=8123", "CONFIG=configs/script.yaml")
    assert "setup.sh" not in again
    assert "pip" not in again
    assert "serve configs/script.yaml --host 127.0.0.1 --port 8123" in again


def test_serving_does_not_install_what_only_developing_needs(tmp_path: Path) -> None:
    starter = make("-n", "serve", f"VENV={tmp_path}").splitlines()
    setup = f"sh scripts/setup.sh {tmp_path}"
    assert starter[0] == f"{setup} local || {setup} base", "the built-in model serves where the starter's parts cannot"
    assert f"{tmp_path}/bin/parley pull --config starter || true" in starter
    assert "dev" in make("-n", "test", f"VENV={tmp_path}").partition("scripts.suites")[0]
    for config, extra in (("configs/qwen3_omni_1gpu.yaml", "hf"), ("configs/nano.yaml", "base"), ("nano", "base")):
        commands = make("-n", "serve", f"VENV={tmp_path}", f"CONFIG={config}")
        assert "parley pull" not in commands
        install = commands.splitlines()[0]
        assert install == f"sh scripts/setup.sh {tmp_path} {extra}", "a configuration says what it needs"


def test_vllm_is_installed_where_it_is_asked_for_and_nowhere_else_in_the_version_that_is_known(tmp_path: Path) -> None:
    assert "sh scripts/vllm.sh .vllm" in make("-n", "-W", "scripts/vllm.sh", "vllm")
    for target in ("serve", "test", "conformance"):
        assert "scripts/vllm.sh" not in make("-n", target, f"VENV={tmp_path}")
    script = (ROOT / "scripts" / "vllm.sh").read_text()
    assert re.search(rf"^version={re.escape(vllm_engine.VERSION)}\.\d+ ", script, re.MULTILINE)


@pytest.mark.parametrize(
    ("version", "system", "machine", "pinned"),
    [
        ("3.11", "linux", "x86_64", "5.0.4"),
        ("3.13", "darwin", "arm64", "5.0.4"),
        ("3.13", "linux", "aarch64", "5.1.1"),
        ("3.12", "linux", "aarch64", None),
        ("3.14", "linux", "x86_64", None),
    ],
)
def test_the_ears_are_asked_for_where_there_is_a_wheel(
    version: str, system: str, machine: str, pinned: str | None
) -> None:
    """And pinned in the same words, or pip would find none that fits both."""
    there = {"python_version": version, "sys_platform": system, "platform_machine": machine}
    for lines in (map(Requirement, PROJECT["dependencies"]), CONSTRAINTS):
        ears = [one for one in lines if one.name == "pocketsphinx" and one.marker and one.marker.evaluate(there)]
        assert [str(one.specifier) for one in ears] == ([] if pinned is None else [f"=={pinned}"])


def test_pins_that_differ_between_machines_are_written_as_the_project_gives_them() -> None:
    ears = [line for line in PROJECT["dependencies"] if line.startswith("pocketsphinx")]
    assert [Requirement(line) for line in ears] == [one for one in CONSTRAINTS if one.name == "pocketsphinx"]


def setup(tmp_path: Path, python: str) -> subprocess.CompletedProcess[str]:
    """Run the installer with a Python of ours, which writes down what it is asked to do instead of doing it."""
    fake = tmp_path / "python"
    fake.write_text(python)
    fake.chmod(0o755)
    return subprocess.run(
        ["sh", str(ROOT / "scripts" / "setup.sh"), str(tmp_path / "venv"), "base"],
        env={"PATH": os.environ["PATH"], "PYTHON": str(fake)}, capture_output=True, text=True,
    )  # fmt: skip


def test_without_a_fitting_python_one_sentence_says_what_to_install(tmp_path: Path) -> None:
    result = setup(tmp_path, "#!/bin/sh\nexit 1\n")
    assert result.returncode == 1
    assert "Parley needs Python 3.11 to 3.14 with venv: install it" in result.stderr
    assert result.stderr.count("\n") == 1


FAKE_PYTHON = """#!/bin/sh
case "$1" in
-m) [ "$2" = venv ] && mkdir -p "$3/bin" && cp "$0" "$3/bin/python"
    [ "$2" = pip ] && { echo "$PIP_SAYS"; echo "pip: $*, constraints: $PIP_CONSTRAINT" >&2; PIP_END; } ;;
esac
exit 0
"""


def test_the_installer_names_the_size_pins_everything_and_leaves_its_stamp(tmp_path: Path) -> None:
    result = setup(tmp_path, FAKE_PYTHON.replace("PIP_END", "exit 0"))
    assert result.returncode == 0, result.stderr
    assert re.search(r"about \d+ MB to download, once", result.stdout)
    assert "--editable ., constraints: constraints.txt" in result.stderr
    assert (tmp_path / "venv" / "base.stamp").exists()


PIP_SAYS = """\
Obtaining file:///parley
Collecting numpy==2.4.0 (from parley-voice==0.1.0)
  Downloading numpy-2.4.0-cp313-cp313-manylinux_2_27_x86_64.whl.metadata (6.6 kB)
Downloading idna-3.11-py3-none-any.whl (71 kB)
Downloading numpy-2.4.0-cp313-cp313-manylinux_2_27_x86_64.whl (16.0 MB)
Installing collected packages: idna, numpy
"""


def test_the_installer_shows_its_progress_in_few_lines(tmp_path: Path) -> None:
    result = setup(tmp_path, FAKE_PYTHON.replace("PIP_END", "exit 0").replace("$PIP_SAYS", PIP_SAYS))
    assert result.stdout.splitlines()[1:] == ["  numpy (16.0 MB)", "  unpacking"]


def test_a_failed_installation_leaves_no_stamp(tmp_path: Path) -> None:
    (tmp_path / "venv").mkdir()
    (tmp_path / "venv" / "base.stamp").touch()
    result = setup(tmp_path, FAKE_PYTHON.replace("PIP_END", "exit 1"))
    assert result.returncode == 1
    assert "The installation failed" in result.stderr
    assert not (tmp_path / "venv" / "base.stamp").exists()


def test_ci_runs_what_a_developer_runs() -> None:
    text = (ROOT / ".ci" / "run").read_text()
    assert os.access(ROOT / ".ci" / "run", os.X_OK)
    assert "make check" in text
    assert "make test" in text
    assert all(text.count(tool) >= 2 for tool in ("chromium", "haproxy", "nginx", "faketime")), "installed and required"


@pytest.mark.parametrize("code", [0, 1])
def test_ci_requires_namespaces_where_the_machine_makes_them_and_goes_on_where_it_refuses(
    code: int, tmp_path: Path
) -> None:
    (tmp_path / "unshare").write_text(f"#!/bin/sh\necho refused >&2\nexit {code}\n")
    (tmp_path / "unshare").chmod(0o755)
    function = re.search(r"^require_what_is_here.+?^}", (ROOT / ".ci" / "run").read_text(), re.MULTILINE | re.DOTALL)
    assert function
    script = f"set -uo pipefail\n{function[0]}\nrequire_what_is_here && echo going on"
    env = {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(["bash", "-c", script], env=env, capture_output=True, text=True)
    assert "going on" in done.stdout
    assert done.stderr == ""
    required = done.stdout.splitlines()[0].removeprefix("required: ").split(",")
    assert ("namespaces" in required) == (code == 0)
    assert set(required) <= {*guard_tools.TOOLS, "nothing"}


def test_every_tool_that_may_be_missing_is_told_but_a_gpu() -> None:
    assert set(script("suites").TOOLS) == set(guard_tools.TOOLS) - {"gpu"}


@pytest.mark.parametrize("name", sorted(configurations()))
def test_every_configuration_can_be_read(name: str) -> None:
    assert load_config(configurations()[name]).title


@pytest.mark.fault("S4.2")
def test_weights_and_recordings_stay_small() -> None:
    assert sum(path.stat().st_size for path in tracked("engine/weights")) <= 25e6
    assert sum(path.stat().st_size for path in tracked("tests/data")) <= 3e6
    assert all(path.suffix not in {".pt", ".pth", ".pkl", ".bin"} for path in tracked("engine/weights"))


@pytest.mark.parametrize("module", ["engine", "app.cli", "app.server", "engine.worker.loop.worker"])
def test_importing_needs_no_torch_and_nothing_that_only_developers_have(module: str) -> None:
    heavy = {"torch", "scipy", "onnx", "httpx", "pytest", "openai"}
    code = f"import sys, {module}; sys.exit(', '.join({heavy} & set(sys.modules)) or 0)"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


@pytest.mark.fault("S6.1")
def test_no_guard_is_an_assert() -> None:
    """The negative control of `python -O`: what a user can do wrong is still refused without assertions."""
    code = "from engine import parse_config; parse_config('modle: script')"
    result = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True)
    assert "did you mean 'model'?" in result.stderr


def test_the_table_of_the_benchmarks_names_every_program() -> None:
    programs = {path.stem for path in tracked("benchmarks/*.py") if "__main__" in path.read_text(encoding="utf-8")}
    rows = re.findall(r"^\| `(\w+)` \|", (ROOT / "benchmarks" / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(rows) == sorted(programs - {"__main__"})  # a peer, which `against` runs


MOST_FILE_LINES = 400
MOST_FUNCTION_LINES = 40


def test_files_and_functions_are_short_enough() -> None:
    files = code_size.sources("app", "engine", "web")
    functions = {f"{file.name}:{name}": lines for file in files for name, lines in file.functions.items()}
    assert {file.name: file.lines for file in files if file.lines > MOST_FILE_LINES} == {}
    assert {name for name, lines in functions.items() if lines > MOST_FUNCTION_LINES} == set()


def test_no_files_import_each_other_in_a_cycle() -> None:
    """import-linter forbids cycles between packages; this also finds one between a package and its own module."""
    graph = grimp.build_graph("app", "engine", "web", cache_dir=None)
    in_cycles = {one for one in graph.modules if graph.find_upstream_modules(one) & graph.find_downstream_modules(one)}
    assert in_cycles == set()


class TestSuites:
    """scripts/suites.py: how it counts, and that a missing tool that is required fails."""

    REPORT = """<testsuites><testsuite>
<testcase classname="tests.app.test_cli" name="a" time="1.5"/>
<testcase classname="tests.app.realtime.test_x" name="b" time="0.5"><failure message="no"/></testcase>
<testcase classname="tests.test_repo" name="c" time="0"><skipped message="node is not installed"/></testcase>
<testcase classname="tests.test_repo" name="d" time="0"><error message="at teardown"/></testcase>
</testsuite></testsuites>"""

    def test_counts(self, tmp_path: Path) -> None:
        suites = script("suites")
        (tmp_path / "0.xml").write_text(self.REPORT)
        found, skipped = suites.read([tmp_path / "0.xml"])
        assert {name: dict(suite.outcomes) for name, suite in found.items()} == {
            "tests": {"skipped": 1, "error": 1},
            "tests/app": {"passed": 1, "failed": 1},
        }
        assert found["tests/app"].seconds == 2.0
        assert dict(skipped) == {"node is not installed": 1}
        assert "1 passed, 1 failed, 1 error, 1 skipped in 3.00s" in suites.closing_line(found, 3.0)

    def test_what_is_compiled_is_kept_for_the_next_process(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
        suites = script("suites")
        assert "PYTHONDONTWRITEBYTECODE" not in suites.environment()
        monkeypatch.setattr(suites, "ROOT", tmp_path)
        (tmp_path / "test_one.py").write_text("import sys\ndef test_it(): assert not sys.dont_write_bytecode\n")
        assert suites.run_pytest(tmp_path / "report.xml", ["-p", "no:cacheprovider", "test_one.py"]) == 0

    @pytest.mark.parametrize(("required", "code"), [("", 0), ("unobtainium", 1)])
    def test_a_required_tool_that_is_missing_fails(
        self, required: str, code: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
    ) -> None:
        suites = script("suites")
        monkeypatch.setattr(suites, "TOOLS", ("unobtainium",))
        monkeypatch.setitem(suites.tools.PROGRAMS, "unobtainium", ("no-such-program",))
        monkeypatch.setenv("PARLEY_REQUIRE", required)
        monkeypatch.setattr(suites, "fetch_page_packages", lambda: None)
        monkeypatch.setattr(suites, "run_pytest", lambda report, run: report.write_text(self.REPORT) and 0)
        assert suites.main([]) == code
        out = capsys.readouterr().out
        assert "missing tool: unobtainium is not installed (looked for no-such-program)" in out
        assert "1.5 s  tests.app.test_cli::a" in out
        assert "skipped 1: node is not installed" in out

    @pytest.fixture
    def web(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
        """A page without its packages, on a machine whose npm and node do what ``npm`` says."""
        web = tmp_path / "web"
        web.mkdir()
        (web / "package-lock.json").write_text("{}")
        monkeypatch.setattr(guard_tools, "WEB", web)
        monkeypatch.setattr(guard_tools, "INSTALLED", web / "node_modules" / ".package-lock.json")
        monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
        for name in ("node", "npm"):
            (tmp_path / name).write_text("#!/bin/sh\necho called >> calls\nmkdir -p node_modules\n")
            (tmp_path / name).chmod(0o755)
        with (tmp_path / "npm").open("a") as npm:
            npm.write("[ ! -e offline ] || { echo 'npm error network is unreachable' >&2; exit 1; }\n")
            npm.write("touch node_modules/.package-lock.json\n")
        return web

    def test_the_pages_packages_are_fetched_once_and_again_when_the_lock_is_newer(self, web: Path) -> None:
        suites = script("suites")
        assert "page's packages" in str(guard_tools.missing("node"))
        for calls in (1, 1):
            suites.fetch_page_packages()
            assert (web / "calls").read_text().count("called") == calls
        assert guard_tools.missing("node") is None
        os.utime(web / "package-lock.json", (4e9, 4e9))
        suites.fetch_page_packages()
        assert (web / "calls").read_text().count("called") == 2

    def test_without_a_network_node_is_one_missing_tool(self, web: Path, capsys: pytest.CaptureFixture[str]) -> None:
        suites = script("suites")
        (web / "offline").touch()
        suites.fetch_page_packages()
        assert "(npm error network is unreachable). Tests that need them are skipped." in capsys.readouterr().out
        assert "page's packages" in suites.missing_tools()["node"]

    def test_without_npm_nothing_is_fetched(self, web: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
        script("suites").fetch_page_packages()
        assert not (web / "calls").exists()
        assert "node is not installed" in str(guard_tools.missing("node"))

    def test_what_takes_long_and_what_is_heavy_have_commands_of_their_own(self) -> None:
        suites = script("suites")
        (quick,), (long,), (heavy,) = (list(suites.runs(names, [])) for names in ([], ["slow"], ["chaos"]))
        assert "not (slow or chaos or " in quick[quick.index("-m") + 1]
        assert quick[quick.index("-m") + 1].endswith(" or bench)")
        assert long[long.index("-m") + 1].startswith("slow and not (chaos or ")
        assert heavy[:3] == ["-s", "-m", "chaos"]

    def test_failing_tests_fail_and_an_unknown_suite_is_named(self, monkeypatch: pytest.MonkeyPatch) -> None:
        suites = script("suites")
        monkeypatch.setattr(suites, "fetch_page_packages", lambda: None)
        monkeypatch.setattr(suites, "run_pytest", lambda report, run: report.write_text(self.REPORT) and 1)
        assert suites.main([]) == 1
        assert suites.main(["caos"]) == 2
