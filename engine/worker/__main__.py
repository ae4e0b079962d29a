"""The entry point of a worker's process.

- ``--socket FD``: started by the local launcher. The inherited socket is the link to the server.
- ``--join HOST:PORT``: started by ``parley worker`` or on another machine. It connects to the server.

In both cases, the first message is the task. The process ends with exit code 0 when the server stops it, 1 when the
server refuses it or an error occurs, and GONE when the connection is lost. On SIGTERM the worker asks the server to
drain it.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import os
import signal
import socket
import sys
from pathlib import Path

from engine.aio import event_loop
from engine.aio.log_handler import LineWriter
from engine.deployment.config import address_of
from engine.errors import ConfigError, EngineError, plain
from engine.ipc import links, messages
from engine.ipc.handshake import read_token
from engine.ipc.protocol_version import ANOTHER, VERSION
from engine.ipc.spawn import end_with_parent
from engine.worker.loop.worker import Worker
from engine.worker.process.join_client import JoinRequest, connect
from engine.worker.process.stage_loader import build, serve, set_niceness, set_visible_device
from engine.worker.process.watchdog import Watchdog

log = logging.getLogger(__name__)

_OURS = ("engine.", "parley_voice.", "parley_stage_", "__main__")
"""Prefixes of the names of Parley's loggers, in a clone and in a wheel. A stage file is a module parley_stage_…."""
GONE = 3  # exit code: the connection was lost; joining again may succeed


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the server handles a Ctrl-C in the terminal
    configure_logging()
    arguments = _parser().parse_args()
    set_niceness()
    try:
        sys.exit(event_loop.run(_work(arguments)))
    except EngineError as error:
        log.error("%s", error)
        sys.exit(1)


def configure_logging() -> None:
    """Log Parley's and the user's own stages from INFO, and libraries from WARNING."""
    writer = LineWriter()
    writer.addFilter(lambda record: record.levelno >= logging.WARNING or record.name.startswith(_OURS))
    logging.basicConfig(level=logging.INFO, handlers=[writer], format="%(levelname)s %(name)s: %(message)s")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="parley_voice.engine.worker")
    way = parser.add_mutually_exclusive_group(required=True)
    way.add_argument("--socket", type=int)
    way.add_argument("--join")
    parser.add_argument("--wire", default=VERSION, help="the server's protocol version")
    parser.add_argument("--token-file", type=Path)
    parser.add_argument("--stages", default="")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--key", default="")
    parser.add_argument("--address", default="")
    parser.add_argument("--wait", type=float, default=300.0)
    parser.add_argument(
        "--tied", action="store_true", help="end when standard input is closed, that is, with the parent process"
    )
    return parser


async def _work(arguments: argparse.Namespace) -> int:
    worker_main = WorkerMain(None if arguments.join is None else Watchdog())
    if arguments.tied:
        asyncio.get_running_loop().add_reader(sys.stdin, lambda: os._exit(GONE))
    if arguments.join is None:
        if end := end_with_parent(signal.SIGKILL):  # a native call that holds the GIL would not notice the closed link
            end()
        link = links.SocketLink(worker_main.receive, worker_main.lost, near=True)
        sock = socket.socket(fileno=arguments.socket)
        await asyncio.get_running_loop().create_connection(lambda: link, sock=sock)
        if arguments.wire != VERSION:  # the task could not be decoded
            return await _refuse(link, f"the environment of {sys.executable} {ANOTHER}")
    else:
        link = await connect(_call(arguments), worker_main.receive, worker_main.lost)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, link.send, messages.Leave())
    code = await worker_main.live(link)
    link.close()
    await asyncio.sleep(0)  # let the last messages be sent
    if worker_main.in_step:  # a native call cannot be ended, and a normal exit would wait for its threads
        logging.shutdown()
        os._exit(code)
    return code


async def _refuse(link: links.SocketLink, why: str) -> int:
    log.error("%s", why)
    link.send(messages.Refused(ConfigError.code, why))
    link.close()
    await asyncio.sleep(0)
    return 1


def _call(arguments: argparse.Namespace) -> JoinRequest:
    host, port = address_of(arguments.join, "--join")
    stages = tuple(filter(None, arguments.stages.split(",")))
    join = messages.Join(arguments.key, stages, arguments.device, arguments.address)
    return JoinRequest(host, port, read_token(arguments.token_file), join, arguments.wait)


class WorkerMain:
    """A worker's process: it receives a task, builds its stages, and serves until the end.

    ``watchdog`` ends the process if a step exceeds its deadline. None: the server does that.
    """

    def __init__(self, watchdog: Watchdog | None) -> None:
        self._watchdog = watchdog
        self._task: asyncio.Future[messages.Task | None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._worker: Worker | None = None
        self._code = GONE

    @property
    def in_step(self) -> bool:
        """Whether a blocking stage is still in a step."""
        return self._worker is not None and self._worker.in_step

    def receive(self, message: messages.Message) -> None:
        match message:
            case messages.Stop():
                self._code = 0
                self.lost()
            case messages.Refused(_, text):
                log.error("the server refused this worker: %s", text)
                self._code = 1
                self.lost()
            case messages.Task() if not self._task.done():
                self._task.set_result(message)
            case _ if self._worker is not None:
                self._worker.receive(message)
            case _:
                pass  # the server opens no run before Hello

    def lost(self) -> None:
        self._over.set()
        if not self._task.done():
            self._task.set_result(None)

    async def live(self, link: links.SocketLink) -> int:
        """Receive the task and serve it until the server stops it or is gone. Return the exit code."""
        task = await self._task
        if task is None:
            return self._code

        def send(message: messages.Message) -> None:
            if self._watchdog is not None and isinstance(message, messages.Blocking):
                self._watchdog.note(message)
            link.send(message)

        try:
            self._worker, hello = build(set_visible_device(task), send)
        except EngineError as error:
            link.send(messages.Refused(error.code, str(error)))
            return 1
        event_loop.settle()
        try:
            await serve(self._worker, hello, task, send, self._over)
        except ExceptionGroup as group:
            log.error("the step loop failed", exc_info=plain(group))
        return self._code


if __name__ == "__main__":
    main()
