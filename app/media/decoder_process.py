"""The decoder process: decodes one file after another within limits of memory and CPU time.

``Decoder`` starts it as ``python -m parley_voice.app.media.decoder_process``, with a socket as its standard input. The
system ends it at a limit, and together with the server.
"""

from __future__ import annotations

import math
import os
import resource
import signal
import socket
import sys
from contextlib import suppress
from pathlib import Path

from app.media.containers import MediaError
from app.media.decode_jobs import Job, Result, receive_job, send_result

MEMORY_BYTES = 1 << 30
"""Address space that decoding may add. An image of 16 megapixels takes 0.2 GB of it, a 4K video 0.5 GB."""
_PR_SET_PDEATHSIG = 1


def main() -> None:
    """Serve jobs until the server closes the socket."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C reaches the whole process group; the server ends this process
    _end_with_parent(int(sys.argv[1]))
    _limit_memory()
    with socket.socket(fileno=os.dup(0)) as connection, suppress(ConnectionError):
        while (received := receive_job(connection)) is not None:
            job, data = received
            _limit_cpu(job.cpu_s)
            send_result(connection, _done(job, data))


def _done(job: Job, data: bytes) -> Result | MediaError:
    try:
        return job.run(data)
    except MediaError as error:
        return error
    except MemoryError:
        return MediaError("the file needs too much memory to decode")


def _limit_memory() -> None:
    """Limit the address space. macOS ignores this limit; there, the server watches the process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with suppress(OSError, ValueError):
        pages = int(Path("/proc/self/statm").read_text(encoding="ascii").split()[0])
        limit = pages * resource.getpagesize() + MEMORY_BYTES
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _limit_cpu(seconds: float) -> None:
    """Let the system end this process after further CPU seconds."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    limit = math.ceil(used.ru_utime + used.ru_stime + seconds)
    resource.setrlimit(resource.RLIMIT_CPU, (limit, resource.getrlimit(resource.RLIMIT_CPU)[1]))


def _end_with_parent(parent: int) -> None:
    """Ask Linux to kill this process with the server. Elsewhere, the socket's end and the CPU limit end it."""
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        sys.exit()  # the server ended before


if __name__ == "__main__":
    main()
