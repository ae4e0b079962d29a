"""Arrays that two processes on one machine exchange through shared memory instead of a socket.

The owner copies an array into an anonymous file (memfd) and sends its number. The other process copies the array from
there and reports that, and the owner closes the file. The file has no name, so a killed process leaves nothing behind.
(Mapping the file would save one copy, but would hold a file descriptor for as long as the array lives.)
"""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import WireError

LEAST_BYTES = 128 << 10  # smaller arrays are as fast through the socket; 1 MB takes a third of the time this way
MOST_SHARED = 128  # arrays under way on one link, each with a file descriptor; further ones go through the socket
NAME = "parley"
POSSIBLE = sys.platform == "linux"


class SharedMemory:
    """The arrays that one end of a link has shared and that the other end has not copied yet."""

    def __init__(self) -> None:
        self._files: set[int] = set()

    def __len__(self) -> int:
        return len(self._files)

    def share(self, array: NDArray[Any]) -> tuple[int, int] | None:
        """Copy an array into shared memory.

        Returns:
            The process id and file number by which the other end reads it. None if the array must be sent as bytes: it
            is small, or no file can be created.
        """
        if array.nbytes < LEAST_BYTES or len(self._files) >= MOST_SHARED:
            return None
        try:
            file = os.memfd_create(NAME, os.MFD_CLOEXEC)
        except OSError:
            return None  # out of file descriptors
        self._files.add(file)
        try:
            _fill(file, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        except OSError:
            self.release(file)
            return None
        return os.getpid(), file

    def release(self, file: int) -> None:
        """Close a file that the other end has copied. Unknown files are ignored."""
        if file in self._files:
            self._files.discard(file)
            os.close(file)

    def close(self) -> None:
        """Close all files, because the other end is gone. May be called twice."""
        for file in list(self._files):
            self.release(file)


def read_shared(process: int, file: int, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return a copy of an array that another process of this machine shares.

    Raises:
        WireError: The file does not exist, is not a shared array, or has another size.
    """
    path = f"/proc/{process:d}/fd/{file:d}"
    try:
        if os.readlink(path).partition(" ")[0] != f"/memfd:{NAME}":
            raise WireError(f"file {file} of process {process} is not shared memory that Parley created")
        ours = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise WireError(
            f"cannot open an array in the shared memory of process {process}, which may have ended: {error.strerror}"
        ) from None
    try:
        wanted = np.dtype(dtype).itemsize * math.prod(shape)
        if os.fstat(ours).st_size != wanted or wanted < LEAST_BYTES:
            raise WireError(f"an array in the shared memory of process {process} has the wrong size")
        array = np.empty(shape, dtype)
        _read(ours, array.reshape(-1).view(np.uint8).data)
    except (OSError, ValueError) as error:
        raise WireError(f"cannot read an array in the shared memory of process {process}: {error}") from None
    finally:
        os.close(ours)
    return array


def _fill(file: int, data: memoryview) -> None:
    while data:
        data = data[os.write(file, data) :]


def _read(file: int, into: memoryview) -> None:
    at = 0
    while at < len(into):
        count = os.preadv(file, [into[at:]], at)
        if not count:
            raise WireError("a shared array is truncated")
        at += count
