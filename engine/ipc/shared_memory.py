"""Arrays that cross between two processes of one machine by reference, through memory instead of a socket.

The owner puts an array into an anonymous file (memfd) and says its number; the other end reads it from there and says
so, and the owner lets go. It has no name, so whoever is killed leaves nothing behind. (Mapping would save a copy and
cost a file descriptor for as long as the array lives; a hop keeps many.)
"""

from __future__ import annotations

import math
import os
import sys
from typing import Any

import numpy as np
from numpy.typing import NDArray

from engine.errors import WireError

LEAST_BYTES = 128 << 10  # below, the bytes themselves are as quick; 1 MB takes a third of the time this way
MOST_SHARED = 128  # arrays under way on one link: each is a file descriptor; further ones go as bytes
NAME = "parley"
POSSIBLE = sys.platform == "linux"


class SharedMemory:
    """The arrays that one end of a link shares and the other has not copied yet."""

    def __init__(self) -> None:
        self._files: set[int] = set()

    def __len__(self) -> int:
        return len(self._files)

    def share(self, array: NDArray[Any]) -> tuple[int, int] | None:
        """(process, file) by which the other end finds a copy of an array; None if its bytes are to go instead."""
        if array.nbytes < LEAST_BYTES or len(self._files) >= MOST_SHARED:
            return None
        try:
            file = os.memfd_create(NAME, os.MFD_CLOEXEC)
        except OSError:
            return None  # no descriptor is left: the bytes need none
        self._files.add(file)
        try:
            _fill(file, np.ascontiguousarray(array).reshape(-1).view(np.uint8).data)
        except OSError:
            self.release(file)
            return None
        return os.getpid(), file

    def release(self, file: int) -> None:
        """The other end has it. A file that is not shared is ignored."""
        if file in self._files:
            self._files.discard(file)
            os.close(file)

    def close(self) -> None:
        """The other end is gone. May be called twice."""
        for file in list(self._files):
            self.release(file)


def read_shared(process: int, file: int, dtype: str, shape: tuple[int, ...]) -> NDArray[Any]:
    """A copy of the array that a process of this machine shares. Raises WireError for anything else."""
    path = f"/proc/{process:d}/fd/{file:d}"
    try:
        if os.readlink(path).partition(" ")[0] != f"/memfd:{NAME}":
            raise WireError("a shared array is no memory of ours")
        ours = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise WireError(f"a shared array is not there: {error.strerror}") from None
    try:
        wanted = np.dtype(dtype).itemsize * math.prod(shape)
        if os.fstat(ours).st_size != wanted or wanted < LEAST_BYTES:
            raise WireError("a shared array has another size")
        array = np.empty(shape, dtype)
        _read(ours, array.reshape(-1).view(np.uint8).data)
    except (OSError, ValueError) as error:
        raise WireError(f"a shared array cannot be read: {error}") from None
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
            raise WireError("a shared array ends early")
        at += count
