"""A worker's process: ``python -m engine.worker --socket FD``, started by the local launcher.

The link to the server is the inherited socket FD; the task is the first thing that comes over it. The process ends when
the server says so, or when the server's end of the socket is gone.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import signal
import socket
import sys

from engine import wire
from engine.errors import EngineError
from engine.worker.heart import beats
from engine.worker.host import build, calm, settle
from engine.worker.process import Worker

log = logging.getLogger(__name__)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is the server's to handle
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    parser = argparse.ArgumentParser(prog="engine.worker")
    parser.add_argument("--socket", type=int, required=True)
    arguments = parser.parse_args()
    calm()
    asyncio.run(_work(socket.socket(fileno=arguments.socket)))


async def _work(sock: socket.socket) -> None:
    mind = Mind()
    link = wire.SocketLink(mind.receive, mind.lost)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=sock)
    await mind.live(link)
    link.close()
    await asyncio.sleep(0)  # let what was written leave


class Mind:
    """What a worker's process does with what it is told: take a task, build its worker, serve until the end."""

    def __init__(self) -> None:
        self._task: asyncio.Future[wire.Task | None] = asyncio.get_running_loop().create_future()
        self._over = asyncio.Event()
        self._worker: Worker | None = None

    def receive(self, message: wire.Message) -> None:
        match message:
            case wire.Stop():
                self.lost()
            case wire.Task() if not self._task.done():
                self._task.set_result(message)
            case _ if self._worker is not None:
                self._worker.receive(message)
            case _:
                pass  # nothing is opened before Hello

    def lost(self) -> None:
        self._over.set()
        if not self._task.done():
            self._task.set_result(None)

    async def live(self, link: wire.SocketLink) -> None:
        """Take the task and serve it until the server says stop, or is gone."""
        task = await self._task
        if task is None:
            return
        try:
            self._worker, hello = build(task, link.send)
        except EngineError as error:
            link.send(wire.Refused(error.code, str(error)))
            return
        settle()
        serving = asyncio.create_task(self._worker.serve(), name="serve")
        await asyncio.sleep(0)
        link.send(hello)
        beating = asyncio.create_task(beats(self._worker, task, link.send), name="beats")
        leaving = asyncio.create_task(self._over.wait(), name="over")
        await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for one in (serving, leaving, beating):
            one.cancel()
        await asyncio.wait({serving, leaving, beating})
        if not serving.cancelled() and (error := serving.exception()):
            log.error("the step loop broke", exc_info=error)


if __name__ == "__main__":
    main()
