"""A worker's process: ``python -m engine.worker FD``, started by the local launcher.

The task comes as one JSON line on stdin; the link to the server is the inherited socket FD. The process ends when the
server says so, or when the server's end of the socket is gone.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys

import msgspec

from engine import wire
from engine.errors import EngineError
from engine.worker.host import build, calm, settle

log = logging.getLogger(__name__)


def main() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a Ctrl-C in the terminal is the server's to handle
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(levelname)s %(name)s: %(message)s")
    task = msgspec.json.decode(sys.stdin.buffer.readline(), type=wire.Task)
    calm()
    asyncio.run(_work(task, socket.socket(fileno=int(sys.argv[1]))))


async def _work(task: wire.Task, sock: socket.socket) -> None:
    gone = asyncio.Event()
    inbox: list[wire.Message] = []
    receive = inbox.append  # nothing is opened before Hello

    def on_message(message: wire.Message) -> None:
        if isinstance(message, wire.Stop):
            gone.set()
        else:
            receive(message)

    link = wire.SocketLink(on_message, gone.set)
    await asyncio.get_running_loop().create_connection(lambda: link, sock=sock)
    try:
        worker, hello = build(task, link.send)
    except EngineError as error:
        link.send(wire.Refused(error.code, str(error)))
    else:
        settle()
        receive = worker.receive
        serving = asyncio.create_task(worker.serve(), name="serve")
        await asyncio.sleep(0)
        link.send(hello)
        leaving = asyncio.create_task(gone.wait(), name="gone")
        await asyncio.wait({serving, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for one in (serving, leaving):
            one.cancel()
        await asyncio.wait({serving, leaving})
        if not serving.cancelled() and (error := serving.exception()):
            log.error("the step loop broke", exc_info=error)
    link.close()
    await asyncio.sleep(0)  # let what was written leave


if __name__ == "__main__":
    main()
