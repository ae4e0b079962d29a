"""A decoder that runs its jobs in this process, for tests that are not about decoder processes."""

from __future__ import annotations

import threading
from typing import BinaryIO

from app.media.decode_jobs import Job, Result


class LocalDecoder:
    alive = True

    def run(self, job: Job, file: BinaryIO, left: threading.Event) -> Result:
        return job.run(bytearray(file.read()))

    def kill(self) -> None:
        self.alive = False

    def close(self) -> None:
        self.alive = False
