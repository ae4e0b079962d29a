"""Speech recognisers of the catalogue for open speech: which one is installed, and which one to download first."""

from __future__ import annotations

from engine.deployment.model_catalog import CatalogModel, catalogue, is_pulled


def installed_ears() -> str | None:
    """Return the first ASR model of the catalogue that is installed; None if there is none."""
    return next((model.name for model in _ears() if is_pulled(model.name)), None)


def advised_ears() -> CatalogModel:
    """Return the smallest ASR model, preferring those whose hashes are all known."""
    return min(_ears(), key=lambda model: (not model.pinned, model.size_mb))


def _ears() -> list[CatalogModel]:
    return [model for model in catalogue().values() if model.part == "ears"]
