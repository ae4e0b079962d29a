"""Download a model of the catalogue, or copy it from a folder, to where the engine looks for it."""

from __future__ import annotations

import fnmatch
import shutil
from collections.abc import Callable, Collection, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec

from app.pulling.download import Expected, check_room, checked, pieces_of, writing
from app.pulling.errors import PullError
from app.pulling.hugging_face import HuggingFace
from app.pulling.sources import ARCHIVES, Sources
from engine.deployment.model_catalog import MANIFEST, CatalogModel, File, Manifest

try:
    import fcntl
except ImportError:  # Windows has no locks: users must not run two pulls of one model at once
    fcntl = None


@dataclass(frozen=True, slots=True)
class PullPlan:
    """The files of a download: the commit, and the expected contents of each file."""

    model: CatalogModel
    commit: str
    files: Sequence[Expected]

    @property
    def size(self) -> int:
        return sum(file.size for file in self.files)


def plan(model: CatalogModel, hub: HuggingFace) -> PullPlan:
    """Return the files to download. A pinned model needs no request. Raises PullError."""
    if model.pinned and all(file.size is not None for file in model.files):
        return PullPlan(model, model.revision, [_expected(file) for file in model.files])
    commit, listed = hub.files(model.repository, model.revision)
    files: list[Expected] = []
    for file in _named(model, listed):
        if (found := listed.get(file.path)) is None:
            raise PullError(f"{model.repository} has no {file.path} at {commit[:8]}; the catalogue is out of date")
        files.append(replace(found, sha256=file.sha256 or found.sha256))
    return PullPlan(model, commit, files)


def fetch(
    plan: PullPlan,
    folder: Path,
    hub: HuggingFace,
    progress: Callable[[int], None],
    say: Callable[[str], None] = lambda _: None,
) -> Manifest:
    """Download a model, each file from the first source that has it, resuming an earlier pull.

    ``say`` receives one sentence whenever a source fails and another one is tried. Raises PullError.
    """
    with locked(folder), Sources(plan.model, plan.commit, hub, folder, progress, say) as sources:
        _check_room(plan, folder)
        hashes = {file.path: _present(file, folder, progress) or sources.fetch(file) for file in plan.files}
        return _finished(plan, folder, hashes)


def take(model: CatalogModel, source: Path, folder: Path, progress: Callable[[int], None]) -> Manifest:
    """Copy a model from the folder ``source``, for machines without a network. Raises PullError.

    ``progress`` receives the bytes of each copied piece.
    """
    files: list[Expected] = []
    for file in _named(model, [path.relative_to(source).as_posix() for path in source.rglob("*") if path.is_file()]):
        if not (source / file.path).is_file():
            raise PullError(f"{source}: has no {file.path}, which {model.name} needs")
        files.append(_expected(file, (source / file.path).stat().st_size))
    brought = PullPlan(model, model.revision, files)
    with locked(folder):
        _check_room(brought, folder)
        hashes = {file.path: _copied(file, source / file.path, folder / file.path, progress) for file in files}
        return _finished(brought, folder, hashes)


def _named(model: CatalogModel, there: Collection[str]) -> list[File]:
    """Return the model's files, with patterns replaced by the existing files."""
    files: list[File] = []
    for file in model.files:
        files += [File(path) for path in sorted(fnmatch.filter(there, file.path))] if "*" in file.path else [file]
    return files


def _expected(file: File, size: int | None = None) -> Expected:
    if None not in (size, file.size) and size != file.size:
        raise PullError(f"{file.path}: has {size} bytes instead of {file.size}; it is a different or incomplete file")
    return Expected(file.path, file.size or size or 0, file.sha256)


def _copied(file: Expected, source: Path, target: Path, progress: Callable[[int], None]) -> str:
    target.parent.mkdir(parents=True, exist_ok=True)
    part = target.with_name(f"{target.name}.part")
    with writing(part), part.open("wb") as out:
        for piece in pieces_of(source):
            out.write(piece)
            progress(len(piece))
    sha256 = checked(file, part)
    part.replace(target)
    return sha256


def _present(file: Expected, folder: Path, progress: Callable[[int], None]) -> str | None:
    """Return the hash of a file that an unfinished pull has downloaded.

    Returns None if the file is missing or wrong. A wrong file is deleted.
    """
    path = folder / file.path
    if not path.is_file():
        return None
    try:
        sha256 = checked(file, path)
    except PullError:
        return None
    progress(file.size)
    return sha256


def _check_room(plan: PullPlan, folder: Path) -> None:
    here = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    check_room(folder, plan.size - here, plan.model.name)


def _finished(plan: PullPlan, folder: Path, hashes: dict[str, str]) -> Manifest:
    """Write the manifest, after which the engine uses the model."""
    files = tuple(File(file.path, file.size, hashes[file.path]) for file in plan.files)
    manifest = Manifest(plan.model.name, plan.model.repository, plan.commit, plan.model.licence, files)
    part = folder / f"{MANIFEST}.part"
    with writing(part):
        part.write_bytes(msgspec.json.format(msgspec.json.encode(manifest)))
        part.replace(folder / MANIFEST)
    shutil.rmtree(folder / ARCHIVES, ignore_errors=True)
    for leftover in folder.rglob("*.part"):
        leftover.unlink()
    return manifest


@contextmanager
def locked(folder: Path) -> Generator[None]:
    """Lock the folder against other pulls while the block lasts. Raises PullError if it is locked."""
    with writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    with (folder / ".lock").open("w") as lock:
        if fcntl is not None:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise PullError(f"{folder}: another `parley pull` is writing to it; wait until it ends") from None
        yield
