"""Speech recognition of the catalogue that understands anything: which is on this machine, and which to fetch first."""

from __future__ import annotations

from engine.deployment.model_catalog import CatalogModel, catalogue, is_pulled


def installed_ears() -> str | None:
    """Return the first ears of the catalogue that were pulled; None if none were."""
    return next((model.name for model in _ears() if is_pulled(model.name)), None)


def advised_ears() -> CatalogModel:
    """Return the smallest download among the ears whose hashes are all known."""
    return min(_ears(), key=lambda model: (not model.pinned, model.size_mb))


def _ears() -> list[CatalogModel]:
    return [model for model in catalogue().values() if model.part == "ears"]
