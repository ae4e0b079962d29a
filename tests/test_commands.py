"""The commands that the pages show run as they stand: a server is started, asked and ended; what measures runs to its
end.

The word above a block says how: with ``start`` each line that serves is asked for a spoken answer, and the others run
before it; with ``measure`` each line runs to its end, and says what it is for; ``join`` is a worker that joins a
server. ``drain`` has its test in tests/deploy/test_haproxy.py, and what programs and clients do in
tests/test_readme.py.

Something stands in for what a reader has and a test has not: a scripted server at the port of Ollama, and for the one
that is elsewhere; tiny models under the names that a line gives; a folder in the hub's place; this machine for
another. Ports are others.
"""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
import yaml

from app.bench import subject
from engine.deployment.llm_urls import PORTS
from engine.deployment.model_catalog import MANIFEST, File, Manifest, catalogue
from tests.app.rig import keys_file
from tests.engine.worker.llm.scripted import Scripted, answer, scripted, stream, words
from tests.test_blocks import ALL, Block
from tests.test_readme import ROOT, WRITTEN_ADDRESS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]

PATIENCE_S = 1200.0
"""A server that starts beside other tests may take a minute, and what measures takes some."""
MINUTES = "benchmarks.ablation"
"""What takes minutes on any machine."""
SUITE = "make test"
"""This is it."""
THERE = ("Hello ", "world.")
"""What every language model says that stands in for a reader's."""
NAMES = ("qwen3.5:4b", "MODEL")
"""What the scripted server calls its model."""
ELSEWHERE, JOINED, KEY = "https://host/v1", "10.0.0.1:7000", "a-key-for-the-model"
TAKEN = "something else listens at Ollama's port"


def shown(kind: str) -> list[Any]:
    found = [(n, one) for n, one in enumerate(ALL) if one.kind == kind]
    marks = {False: [], True: [pytest.mark.soak]}
    return [pytest.param(one, id=f"{one.page}-{n}", marks=marks[MINUTES in one.code]) for n, one in found]


def lines(block: Block) -> list[str]:
    """Its commands without their remarks."""
    return [line for row in block.code.splitlines() if (line := re.sub(r"\s+#.*", "", row).strip()) and line != SUITE]


@dataclass(frozen=True)
class Reader:
    """A reader's folder and home."""

    folder: Path
    home: Path

    async def runs(self, line: str, ends: tuple[int, ...] = (0,)) -> str:
        """Run a line to its end; what it said."""
        process = await self._start(line, stderr=asyncio.subprocess.STDOUT)
        try:
            said, _ = await asyncio.wait_for(process.communicate(), PATIENCE_S)
        finally:
            await _end(process)
        assert process.returncode in ends, said.decode()
        assert b"Traceback" not in said
        return said.decode()

    @asynccontextmanager
    async def running(self, line: str) -> AsyncGenerator[asyncio.subprocess.Process]:
        """A program that is ended as by Ctrl-C in its terminal, and ends without a trace of its code."""
        log = self.home / f"{len(list(self.home.iterdir()))}.log"
        with log.open("wb") as file:
            process = await self._start(line, stdout=file, stderr=file)
        try:
            yield process
            os.killpg(process.pid, signal.SIGINT)
            await asyncio.wait_for(process.wait(), PATIENCE_S)
            assert "Traceback" not in log.read_text()
        except BaseException:
            sys.stderr.write(log.read_text())
            raise
        finally:
            await _end(process)

    async def _start(self, line: str, **more: Any) -> asyncio.subprocess.Process:
        env = {**os.environ, "HOME": str(self.home), "PIP_NO_INDEX": "1"}
        env["CONFIG"] = "configs/nano.yaml"  # `make serve` fetches no models here
        env["PATH"] = os.pathsep.join([str(self.folder / ".venv" / "bin"), env["PATH"]])
        env["PYTHONPATH"] = os.pathsep.join([str(ROOT), env["PYTHONPATH"]])
        options: dict[str, Any] = {"stdout": asyncio.subprocess.PIPE, "start_new_session": True, **more}
        return await asyncio.create_subprocess_exec("bash", "-euc", line, cwd=self.folder, env=env, **options)


async def _end(process: asyncio.subprocess.Process) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()


@pytest.fixture
def reader(tmp_path: Path) -> Reader:
    """A clone behind a first `make serve`: what that installs is there."""
    folder, home = tmp_path / "parley", tmp_path / "home"
    (folder / ".venv").mkdir(parents=True)
    home.mkdir()
    for name in ("Makefile", "configs", "constraints.txt", "examples", "pyproject.toml", "scripts", "tests"):
        (folder / name).symlink_to(ROOT / name)
    for one in Path(sys.prefix).iterdir():
        if one.suffix != ".stamp":
            (folder / ".venv" / one.name).symlink_to(one)
    for stamp in ("base", "local"):
        (folder / ".venv" / f"{stamp}.stamp").touch()
    return Reader(folder, home)


@asynccontextmanager
async def thinking(at_ollama: bool) -> AsyncGenerator[Scripted]:
    """A language model's server, at Ollama's port or any; tests that run beside each other take it in turn."""
    listed = answer(200, {"data": [{"id": name} for name in NAMES]})
    async with asyncio.timeout(PATIENCE_S):
        while at_ollama:
            with suppress(OSError):
                (await asyncio.start_server(lambda *_: None, "127.0.0.1", PORTS["ollama"])).close()
                break
            if not await ours():
                pytest.skip(TAKEN)
            await asyncio.sleep(0.2)
    async with scripted(stream(*words(*THERE)), models=listed, port=PORTS["ollama"] if at_ollama else 0) as llm:
        yield llm


async def ours() -> bool:
    """Whether the server at Ollama's port is another test's."""
    with suppress(httpx.HTTPError, ValueError, KeyError):
        async with httpx.AsyncClient(trust_env=False, timeout=10) as http:
            found = (await http.get(f"http://127.0.0.1:{PORTS['ollama']}/v1/models")).json()
        return [one["id"] for one in found["data"]] == [*NAMES]
    return True  # it has just gone


@pytest.mark.parametrize("block", shown("start"))
async def test_a_server_that_a_page_starts_answers_aloud(block: Block, reader: Reader) -> None:
    at_ollama = any(word in block.code for word in ("--thinker auto", "ollama:"))
    async with thinking(at_ollama) as llm:
        for line in lines(block):
            if " serve" in line:
                await _served(line.replace(ELSEWHERE, llm.url), reader)
            else:
                await reader.runs(beside_models(line, reader))
        asked = {one.head.get("authorization") for one in llm.asked}
    assert bool(llm.asked) == (at_ollama or ELSEWHERE in block.code)
    assert (f"Bearer {KEY}" in asked) == ("--thinker-key-file" in block.code)


async def _served(line: str, reader: Reader) -> None:
    """Start a server, ask it, and end it."""
    port = subject._free_port()
    bring(line, reader)
    thinks = "--thinker" in line or "laptop" in line
    option = f"PORT={port}" if line.startswith("make") else f"--port {port}"
    async with reader.running(f"{line} {option}") as process, httpx.AsyncClient(timeout=PATIENCE_S) as http:
        await _ready(http, f"http://127.0.0.1:{port}", process)
        said = {"role": "user", "content": "Say good morning."}
        body = {"model": "any", "messages": [said], "modalities": ["text", "audio"], "audio": {"format": "wav"}}
        answered = await http.post(f"http://127.0.0.1:{port}/v1/chat/completions", json=body)
        audio = answered.raise_for_status().json()["choices"][0]["message"]["audio"]
        assert ("".join(THERE) if thinks else "morning") in audio["transcript"]
        assert len(audio["data"]) > 10_000


async def _ready(http: httpx.AsyncClient, url: str, process: asyncio.subprocess.Process) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while process.returncode is None:
            with suppress(httpx.TransportError):
                health = await http.get(f"{url}/health")
                if health.status_code == 200 and health.json()["ready"]:
                    return
            await asyncio.sleep(0.1)
    raise AssertionError("the server ended before it was ready")


def bring(line: str, reader: Reader) -> None:
    """What a reader has brought before they type such a line."""
    if "key-file" in line:
        keys_file(reader.folder, KEY, name="key")
    if found := re.search(r"gguf:(\S+)", line):
        thinker(reader.folder / found[1])
    if "laptop" in line:
        for name, make in (("zipformer-en", ears), ("kokoro-en", kokoro), ("qwen3-1.7b", qwen)):
            pulled(reader, name, make)
    if "--voice pocket" in line:  # the package knows no model so small by its name
        form = tiny(reader, "pocket") / "languages" / "english" / "english.yaml"
        shutil.copy(form, models(reader) / "pocket" / "languages" / "english")


def beside_models(line: str, reader: Reader) -> str:
    """A line that fetches something, from what is here."""
    if found := re.search(r"parley pull (\S+)", line):
        return f"{line} --from {tiny(reader, found[1])}"
    return line.replace("-e '.[local]'", "'parley-voice[local]'")  # whose packages are here; nothing is installed


def models(reader: Reader) -> Path:
    return reader.home / ".local" / "share" / "parley" / "models"


def pulled(reader: Reader, name: str, make: Callable[[Path], object]) -> None:
    """A model's folder as `parley pull` leaves it."""
    folder, model = models(reader) / name, catalogue()[name]
    folder.mkdir(parents=True, exist_ok=True)
    make(folder)
    files = tuple(File(one.name, one.stat().st_size) for one in folder.iterdir())
    notes = Manifest(name, model.repository, model.revision, model.licence, files)
    (folder / MANIFEST).write_bytes(msgspec.json.encode(notes))


def tiny(reader: Reader, name: str) -> Path:
    """A voice of random weights, in the files that its publisher has."""
    folder = reader.home / name
    if not folder.exists():
        pytest.importorskip({"phonon": "ptts", "pocket": "pocket_tts"}[name])
        from tests.engine.worker.stages.tts import tiny_phonon, tiny_pocket

        if name == "phonon":
            tiny_phonon.phonon(folder)
        else:
            tiny_pocket.pocket(folder, ("alba", "marius", "javert"))
    return folder


def ears(folder: Path) -> object:
    pytest.importorskip("sherpa_onnx")
    from tests.engine.worker.stages.asr import tiny_ears

    return tiny_ears.transducer(folder)


def kokoro(folder: Path) -> object:
    from tests.engine.worker.stages.tts import tiny_voices

    return tiny_voices.kokoro(folder)


def qwen(folder: Path) -> object:
    return thinker(folder / "Qwen3-1.7B-Q8_0.gguf")


def thinker(file: Path) -> object:
    from tests.engine.worker.llm.gguf_files import saying, write_model

    file.parent.mkdir(exist_ok=True)
    return write_model(file, saying(*THERE))


SAYS = {
    r"benchmarks\.serve .*--replicas": r"answers: failed +│ 0 ",
    r"benchmarks\.serve .*--url": r"voice +│(.|\n)*│ slt (.|\n)*answers: another's( sound)? +│ 0 ",
    r"benchmarks\.ablation": r"saved by prefixes(.|\n)*of collections",
    r"benchmarks\.overhead": r"hand-over across processes, p50 +[\d.]+",
    r"benchmarks\.turns": r"voice alone \| \d+ ms / \d+ ms \|",
    r"make_turns|tiny_qwen3_omni": r"",
}
"""What a line that measures has said by its end."""
MEASURED = (0, 1)
"""How it ends: with all its bars held, or not, which are for a machine with nothing else to do."""


@pytest.mark.parametrize("block", shown("measure"))
async def test_what_a_page_measures_is_measured(block: Block, reader: Reader) -> None:
    if missing := [name for name in ("flite", "festival") if name in block.code and shutil.which(name) is None]:
        pytest.skip(f"{missing[0]} is not here")
    for line in lines(block):
        bring(line, reader)
        (says,) = [says for pattern, says in SAYS.items() if re.search(pattern, line)]
        if WRITTEN_ADDRESS in line:
            with subject.running(None) as server:
                said = await reader.runs(line.replace(WRITTEN_ADDRESS, server.url.removeprefix("ws://")), MEASURED)
        else:
            said = await reader.runs(line, MEASURED)
        assert re.search(says, said), said
        for name in re.findall(r"--json (\S+)", line):
            assert (reader.folder / name).stat().st_size > 1000


async def until(true: Callable[[], bool]) -> None:
    async with asyncio.timeout(PATIENCE_S):
        while not true():  # noqa: ASYNC110
            await asyncio.sleep(0.1)


@pytest.mark.parametrize("block", shown("join"))
async def test_a_worker_that_a_page_starts_joins(block: Block, reader: Reader) -> None:
    """The server is the one of the sentence above, with what the line leaves to it."""
    (line,) = lines(block)
    (stages,) = re.findall(r"--stages (\S+)", line)
    address, port = f"127.0.0.1:{subject._free_port()}", subject._free_port()
    keys_file(reader.folder, "a-secret-that-both-know-of-32-characters", name="token")
    tree = yaml.safe_load((ROOT / "configs" / "nano.yaml").read_text())
    tree["workers"] = [{"stages": ["ears", "thinker"]}, {"stages": stages.split(","), "replicas": 0}]
    tree["cluster"] = {"listen": address, "token_file": "token"}
    (reader.folder / "server.yaml").write_text(yaml.safe_dump(tree))
    serve = f".venv/bin/parley serve server.yaml --port {port}"
    async with (
        reader.running(serve) as server,
        reader.running(line.replace(JOINED, address)),
        httpx.AsyncClient(timeout=PATIENCE_S) as http,
    ):
        await _ready(http, f"http://127.0.0.1:{port}", server)
        said = {"model": "nano", "input": "Good morning.", "response_format": "pcm"}
        spoken = await http.post(f"http://127.0.0.1:{port}/v1/audio/speech", json=said)
        assert len(spoken.raise_for_status().content) > 24_000
