"""The decoder process: decodes one file after another within limits of memory and CPU time.

``Decoder`` starts it as ``python -m parley_voice.app.media.decoder_process``.
"""

from __future__ import annotations

import socket

from app.media.containers import MediaError
from app.media.decode_jobs import Job, Result, receive_job, send_result
from engine.ipc import helper_process, process_limits

MEMORY_BYTES = 1 << 30
"""Address space that decoding may add. An image of 16 megapixels takes 0.2 GB of it, a 4K video 0.5 GB."""


def main() -> None:
    """Serve jobs until the server closes the socket."""
    helper_process.serve(MEMORY_BYTES, _serve)


def _serve(connection: socket.socket) -> bool:
    """Run the next job. Its file is freed before another one arrives. Returns False if there is none."""
    received = receive_job(connection)
    if received is None:
        return False
    job, data = received
    process_limits.limit_cpu(job.cpu_s)
    send_result(connection, _done(job, data))
    return True


def _done(job: Job, data: bytearray) -> Result | MediaError:
    try:
        return job.run(data)
    except MediaError as error:
        return error
    except MemoryError:
        return MediaError("the file needs too much memory to decode")


if __name__ == "__main__":
    main()
