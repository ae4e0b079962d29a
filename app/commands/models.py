"""`parley models` and `parley pull NAME`: list the models of the catalogue, and download them. Starts no engine."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn, TransferSpeedColumn
from rich.table import Column, Table

from app.commands import terminal
from app.pulling.errors import PullError
from app.pulling.hugging_face import HuggingFace
from app.pulling.pull import fetch, plan, take
from engine.deployment.model_catalog import CatalogModel, catalogue, is_pulled, manifest_of, model_of, models_folder
from engine.deployment.secret_file import read_key


def models() -> None:
    """Print a line for each model of the catalogue."""
    table = Table(Column("name", no_wrap=True), "part", "size", "languages", "licence", "here", box=None)
    for model in catalogue().values():
        licence = ", ".join((model.licence, *model.restrictions, *_remarks(model)))
        here = "yes" if is_pulled(model.name) else ""
        table.add_row(model.name, model.part, f"{model.size_mb} MB", " ".join(model.languages), licence, here)
    Console(emoji=False).print(table)
    terminal.whisper(
        f"`parley pull NAME` downloads one to {models_folder()}; `weights: NAME` in a configuration uses it."
    )


def _remarks(model: CatalogModel) -> Iterator[str]:
    if not model.pinned:
        yield "unverified"
    if model.superseded_by:
        yield f"superseded by {model.superseded_by}"


def pull(name: str, source: Path | None, hub_url: str, token_file: Path | None, agreed: bool) -> None:
    """Download a model from a hub, or copy it from a folder. Raises PullError and WeightsError."""
    model, folder = model_of(name), models_folder() / name
    if (manifest := manifest_of(folder)) is not None:
        origin = f"{manifest.repository} at {manifest.revision[:8]}" if manifest.repository else model.origin
        terminal.say(f"{name} is already here: {folder} ({origin})")
        return
    memory = f"{model.ram_mb} MB of memory, " if model.ram_mb else ""
    terminal.say(f"{name}: {model.origin}, {model.size_mb} MB, {memory}licence {model.licence}")
    _agree(model, agreed)
    if source is not None:
        with _bar(name, None) as progress:
            take(model, source, folder, progress)
    else:
        hub = HuggingFace(hub_url, read_key(str(token_file), "--token-file") if token_file else None)
        wanted = plan(model, hub)
        if not model.pinned:
            terminal.whisper(f"its files are not pinned: taking those of {hub_url} at {wanted.commit[:8]}")
        with _bar(name, wanted.size) as progress:
            fetch(wanted, folder, hub, progress, terminal.whisper)
    terminal.say(f"{name} is here: {folder}")


def _agree(model: CatalogModel, agreed: bool) -> None:
    """Make users confirm a licence with restrictions. Raises PullError."""
    if not model.restrictions or agreed:
        return
    what = " and ".join(model.restrictions)
    if not terminal.console.is_terminal:
        raise PullError(f"{model.name} is {what} ({model.licence}); read its licence, then pass --agree")
    if not typer.confirm(f"It is {what}. Have you read its licence, and does it allow what you do?", err=True):
        raise PullError(f"{model.name}: not pulled")


@contextmanager
def _bar(name: str, total: int | None) -> Generator[Callable[[int], None]]:
    columns = (TextColumn(name), BarColumn(), DownloadColumn(), TransferSpeedColumn())
    with Progress(*columns, console=terminal.console, disable=not terminal.console.is_terminal) as bar:
        task = bar.add_task("", total=total)
        yield lambda count: bar.advance(task, count)
