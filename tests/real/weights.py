"""The weights of the suite `real`, in a cache folder of this user. `python -m tests.real.weights` fetches them, once.

The models are those of the product's catalogue that are named here, and those of `models.yaml` beside this file.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from app.pulling.errors import PullError
from app.pulling.hugging_face import HuggingFace
from app.pulling.pull import fetch, plan
from engine.deployment.model_catalog import CatalogModel, catalogue, manifest_of

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "parley" / "real"
SHIPPED = ("smollm2-135m", "moonshine-tiny-en", "whisper-base", "whisper-tiny-en", "kokoro-int8", "campplus")
"""Models of the product's catalogue that the suite runs."""


def models() -> dict[str, CatalogModel]:
    """Every model of the suite, by its name."""
    shipped = catalogue()
    return {name: shipped[name] for name in SHIPPED} | dict(catalogue(Path(__file__).with_name("models.yaml")))


def is_here(name: str) -> bool:
    """Whether a model lies in the cache with the files that the catalogue names today."""
    manifest = manifest_of(CACHE / name)
    return manifest is not None and {(file.path, file.sha256) for file in manifest.files} == {
        (file.path, file.sha256) for file in models()[name].files
    }


def main() -> int:
    """Fetch the models that are missing. 1 if one cannot be had."""
    missing = [model for name, model in models().items() if not is_here(name)]
    console = Console()
    hub = HuggingFace()
    failed = False
    with Progress(console=console) as progress:
        for model in missing:
            task = progress.add_task(model.name, total=model.size_mb * 10**6)
            try:
                fetch(plan(model, hub), CACHE / model.name, hub, lambda size, task=task: progress.advance(task, size))
            except PullError as error:
                failed = True
                console.print(f"{model.name} cannot be had, so its tests are skipped: {error}", markup=False)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
