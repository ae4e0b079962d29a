"""A handle on one decoder process."""

from __future__ import annotations

import socket
import threading
from typing import BinaryIO

from app.media.containers import MediaError
from app.media.decode_jobs import Job, Result, receive_result, send_job
from engine.ipc.helper import Helper

_MODULE = "parley_voice.app.media.decoder_process"
_MEMORY_BYTES = 1_200_000_000
_WALL_FACTOR = 5
"""A job may take this many times its CPU seconds, since the machine may be busy."""
_TOO_COSTLY = "the file takes too much time or memory to decode, or crashes the decoder"


class Decoder(Helper):
    """A decoder process."""

    def __init__(self) -> None:
        super().__init__(_MODULE, _MEMORY_BYTES)

    def run(self, job: Job, file: BinaryIO, left: threading.Event) -> Result:
        """Run a job. The process is killed if it exceeds a limit, or soon after ``left`` is set.

        Closes the file as soon as the process has it. Raises MediaError.
        """

        def decoded(connection: socket.socket) -> Result:
            try:
                send_job(connection, job, file)
            except ValueError:  # the client left, and its file was closed
                raise EOFError from None
            return receive_result(connection)

        try:
            return self.exchange(decoded, _WALL_FACTOR * job.cpu_s, left)
        except EOFError:
            raise MediaError(_TOO_COSTLY) from None
