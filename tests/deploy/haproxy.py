"""HAProxy itself with deploy/haproxy.cfg, in front of two servers that are processes of their own."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager, closing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx

from tests.app.scripted import ROOT

CONFIG = ROOT / "deploy" / "haproxy.cfg"
SERVE = """
import dataclasses, json, sys
import aioice.ice
from app.server import serve
from engine.deployment.config import ClusterSpec
from tests.app.scripted import script_spec
aioice.ice.get_host_addresses = lambda use_ipv4, use_ipv6: ["127.0.0.1"]
section, token_file = json.loads(sys.argv[1]), sys.argv[2]
join = section.pop("join", None)
spec = script_spec(trusted_proxies=["127.0.0.1"], **section)
if join is not None:  # its workers come from elsewhere
    workers = tuple(dataclasses.replace(one, replicas=0) for one in spec.workers)
    spec = dataclasses.replace(spec, workers=workers, cluster=ClusterSpec(listen=join, token_file=token_file))
serve(spec)
"""
NAMES = ("a", "b")
"""Those of deploy/haproxy.cfg's servers."""
KEY = "the-key-of-everyone"
SILENT = "/v1/chat/completions"
"""The path of which a stand-in says nothing before it is told to go on."""
PATIENCE_S = 240.0
"""Three programs start at once; beside other tests that may take a minute."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as one:
        return one.getsockname()[1]


@dataclass(eq=False)
class Process:
    """A program that is started, and started again."""

    command: list[str]
    environment: Mapping[str, str]
    running: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self.running = subprocess.Popen(self.command, env={**os.environ, **self.environment}, cwd=ROOT)

    def send(self, how: signal.Signals) -> None:
        assert self.running is not None
        self.running.send_signal(how)

    async def end(self, how: signal.Signals = signal.SIGTERM) -> int:
        """Send a signal, and wait for the exit code."""
        assert self.running is not None
        with suppress(ProcessLookupError):
            self.running.send_signal(how)
        return await asyncio.to_thread(self.running.wait, PATIENCE_S)


@dataclass(eq=False)
class Fronts:
    """Two servers, and the proxy before them."""

    ports: Mapping[str, int]
    """The port of each server, and of the proxy."""
    admin: Path
    """HAProxy's own socket."""
    processes: dict[str, Process] = field(default_factory=dict[str, Process])

    @property
    def servers(self) -> tuple[str, ...]:
        return tuple(name for name in self.ports if name != "proxy")

    def url(self, of: str = "proxy", scheme: str = "http") -> str:
        return f"{scheme}://127.0.0.1:{self.ports[of]}"

    async def tell(self, command: str) -> str:
        """Say something to HAProxy, as an operator does."""
        reader, writer = await asyncio.open_unix_connection(str(self.admin))
        writer.write(f"{command}\n".encode())
        said = (await reader.read()).decode()
        writer.close()
        await writer.wait_closed()
        return said

    async def status(self, server: str) -> str:
        """What HAProxy takes a server for."""
        return (await self._statistics(server))[17]

    async def open_at(self, server: str) -> int:
        """The number of requests and sockets that HAProxy has open at a server, or at all of them (``BACKEND``)."""
        return int((await self._statistics(server))[4])

    async def _statistics(self, server: str) -> list[str]:
        lines = [line.split(",") for line in (await self.tell("show stat")).splitlines()]
        return next(line for line in lines if line[:2] == ["parley", server])

    async def until(self, server: str, status: str) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not (await self.status(server)).startswith(status):  # noqa: ASYNC110
                await asyncio.sleep(0.05)

    async def restart_proxy(self) -> None:
        """Begin anew without anything that the old one knew. Its connections are cut."""
        await self.processes["proxy"].end()
        await asyncio.to_thread(self.admin.unlink, missing_ok=True)
        self.processes["proxy"].start()
        await listens(self.admin)
        for name in self.servers:
            await self.up(name)

    async def sessions(self, server: str) -> int:
        async with httpx.AsyncClient() as http:
            headers = {"authorization": f"Bearer {KEY}"}
            page = (await http.get(f"{self.url(server)}/metrics", headers=headers)).text
        return int(float(page.partition("\nparley_sessions ")[2].partition("\n")[0]))

    async def up(self, server: str) -> None:
        """Wait until a server is ready, and HAProxy knows it."""
        async with asyncio.timeout(PATIENCE_S), httpx.AsyncClient() as http:
            while True:
                with suppress(httpx.TransportError):
                    if (await http.get(f"{self.url(server)}/health")).status_code == 200:
                        break
                await asyncio.sleep(0.05)
        await self.until(server, "UP")


@asynccontextmanager
async def fronts(
    folder: Path, config: Path = CONFIG, names: tuple[str, ...] = NAMES, **settings: Mapping[str, Any]
) -> AsyncGenerator[Fronts]:
    """Two servers behind the proxy, from ready to gone; ``settings`` of each, by its name.

    One with an address to ``join`` gets a worker of its own there, the process ``worker``.
    """
    keys = folder / "keys"
    keys.touch(0o600)
    keys.write_text(f"us: {KEY}\nthem: another-key-of-theirs\n")
    one = Fronts({name: free_port() for name in (*names, "proxy")}, folder / "admin.sock")
    for name in names:
        section = {"name": name, "port": one.ports[name], "keys_file": str(keys), **settings.get(name, {})}
        one.processes[name] = _python("-c", SERVE, json.dumps(section), str(folder / "token"))
        if "join" in section:
            worker = ["worker", "--join", str(section["join"]), "--token-file", str(folder / "token")]
            one.processes["worker"] = _python("-m", "app", *worker, "--stages", "ears,thinker,talker,code2wav")
    one.processes["proxy"] = proxy(one, config)
    try:
        (folder / "token").touch(0o600)
        (folder / "token").write_text("a-secret-that-both-know-of-32-characters")
        for process in one.processes.values():
            process.start()
        await listens(one.admin)
        for name in names:
            await one.up(name)
        yield one
    finally:
        for process in reversed(one.processes.values()):  # a worker that is killed would leave its own processes
            if process.running is not None:
                process.running.send_signal(
                    signal.SIGTERM if process is one.processes.get("worker") else signal.SIGKILL
                )
                process.running.wait()


def proxy(one: Fronts, config: Path) -> Process:
    """HAProxy before the two servers, not yet started: PARLEY_A is the first one's address, PARLEY_B the other's."""
    addresses = {
        f"PARLEY_{which}": f"127.0.0.1:{one.ports[name]}" for which, name in zip("AB", one.servers, strict=True)
    }
    return Process(
        ["haproxy", "-db", "-q", "-f", str(config)],
        {
            "PARLEY_BIND": f"127.0.0.1:{one.ports['proxy']}",
            "PARLEY_ADMIN": str(one.admin),
            "PARLEY_PHONES": one.servers[0],
            **addresses,
        },
    )


def _python(*arguments: str) -> Process:
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    return Process([sys.executable, *arguments], {"PYTHONPATH": path})


async def stand_in(name: str, host: str, port: int, go_on: asyncio.Event | None = None) -> asyncio.Server:
    """A server that only says its name, to requests without a body, each on a connection of its own."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(asyncio.IncompleteReadError, ConnectionError), closing(writer):
            if SILENT.encode() in await reader.readuntil(b"\r\n\r\n"):
                if go_on is None:
                    await reader.read()
                    return
                await go_on.wait()
            head = f"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: {len(name)}"
            writer.write(f"{head}\r\n\r\n{name}".encode())

    return await asyncio.start_server(answer, host, port)


async def listens(admin: Path) -> None:
    """Wait until HAProxy runs."""
    async with asyncio.timeout(PATIENCE_S):
        while not await asyncio.to_thread(admin.exists):  # noqa: ASYNC110
            await asyncio.sleep(0.02)
