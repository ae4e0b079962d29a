"""Workers in another network namespace join over a route: from the address that it has, or the one they are given."""

from __future__ import annotations

import json
import os
import secrets
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

SERVER, WORKER, OTHER, PORT = "10.213.7.1", "10.213.7.2", "10.213.7.3", 7000
"""Addresses at the two ends of one cable; the worker's end has two. Nobody else is in the server's namespace."""
PATIENCE_S = 60

SERVE = """
import asyncio, json, sys
from engine import Engine, EngineSpec, Message, Request, TextPart, WorkerSpec
from engine.chunk import Audio, Text
from engine.deployment.config import ClusterSpec

async def main(listen, token):
    cluster = ClusterSpec(listen=listen, token_file=token)
    workers = WorkerSpec(stages=("ears", "thinker")), WorkerSpec(stages=("talker", "code2wav"), replicas=0)
    engine = await Engine(EngineSpec(model="script", workers=workers, launcher="inline", cluster=cluster)).__aenter__()
    while engine.stats()["talker"]["replicas"] < 2:
        await asyncio.sleep(0.01)
    guests = [one.launcher for name, one in engine._fleet.placements.items() if name.startswith("guest")]
    came = sorted(guest._transport.get_extra_info("peername")[0] for guest in guests)
    asked = Request(id="r", session="s", messages=(Message("user", (TextPart("say: over the cable"),)),))
    async with engine.open(asked) as chunks:
        got = [chunk async for chunk in chunks]
    text = "".join(chunk.text for chunk in got if isinstance(chunk, Text))
    samples = sum(len(chunk.wave) for chunk in got if isinstance(chunk, Audio))
    print(json.dumps({"came": came, "text": text, "samples": samples}), flush=True)
    await engine.__aexit__(None, None, None)

asyncio.run(main(*sys.argv[1:]))
"""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A network of its own: what runs there reaches the other end of its cable, and nothing else."""

    name: str

    def start(self, *command: str) -> subprocess.Popen[str]:
        """A Python process there. The tests' own guard of connections is not in it: there is no way out to guard."""
        paths = os.environ.get("PYTHONPATH", "").split(os.pathsep)
        path = os.pathsep.join(one for one in paths if Path(one).name != "guard")
        return subprocess.Popen(
            ["ip", "netns", "exec", self.name, sys.executable, *command],
            env=os.environ | {"PYTHONPATH": path}, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True, text=True)


@contextmanager
def namespace(name: str) -> Iterator[Namespace]:
    ip("netns", "add", name)
    try:
        ip("-n", name, "link", "set", "lo", "up")
        yield Namespace(name)
    finally:
        ip("netns", "del", name)


@pytest.fixture
def ends() -> Iterator[tuple[Namespace, Namespace]]:
    """The server's namespace and the worker's, with a cable between them."""
    mark = secrets.token_hex(3)
    with ExitStack() as made:
        try:
            server, worker = (made.enter_context(namespace(f"parley-{end}-{mark}")) for end in "ab")
            cable = f"pa{mark}", f"pb{mark}"
            ip("link", "add", cable[0], "netns", server.name, "type", "veth", "peer", cable[1], "netns", worker.name)
            for end, link, addresses in ((server, cable[0], [SERVER]), (worker, cable[1], [WORKER, OTHER])):
                for address in addresses:
                    ip("-n", end.name, "address", "add", f"{address}/24", "dev", link)
                ip("-n", end.name, "link", "set", link, "up")
        except FileNotFoundError:
            pytest.skip("ip is not installed, without which no second network can be made")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no second network can be made here: {error.stderr.strip()}")
        yield server, worker


@pytest.mark.seed("A1.18")
def test_workers_of_another_network_join_from_the_address_of_the_route_or_the_one_that_they_are_given(
    ends: tuple[Namespace, Namespace], tmp_path: Path
) -> None:
    server, worker = ends
    token = tmp_path / "token"
    token.write_text("x" * 40)
    token.chmod(0o600)
    join = ["-m", "engine.worker", "--join", f"{SERVER}:{PORT}", "--token-file", str(token)]
    join += ["--stages", "talker,code2wav", "--wait", str(PATIENCE_S)]
    processes = [
        server.start("-c", SERVE, f"{SERVER}:{PORT}", str(token)),
        worker.start(*join, "--key", "by the route"),
        worker.start(*join, "--key", "by its option", "--address", OTHER),
    ]
    try:
        said, wrong = processes[0].communicate(timeout=PATIENCE_S)
        assert said, wrong
        got = json.loads(said)
        assert got["came"] == [WORKER, OTHER]
        assert got["text"] == "over the cable"
        assert got["samples"] > 0
        for process in processes[1:]:
            assert process.wait(PATIENCE_S) == 0, "the server has let it go"
    finally:
        for process in processes:
            process.kill()
            process.communicate()
