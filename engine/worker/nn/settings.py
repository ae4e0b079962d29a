"""A checkpoint's configuration as attributes, with a family's defaults for omitted fields.

Source: the configuration classes of transformers 5.23, including older names and forms of fields.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any, cast

ALIASES = {
    "num_local_experts": "num_experts",
    "audio_token_id": "audio_token_index",
    "image_token_id": "image_token_index",
    "video_token_id": "video_token_index",
}
"""Alternative field names, and the names that the families use."""
SECTION = "_config"
"""Suffix of fields that contain a nested configuration."""
ROPE = "rope_parameters"


def settings_of(config: Mapping[str, Any], defaults: Mapping[str, Any]) -> Any:
    """Return a configuration as attributes, section by section. Missing fields get the value in ``defaults``.

    Sections that ``defaults`` lacks are omitted, because the family does not use them.
    """
    found = {name: value for name, value in defaults.items() if not name.endswith(SECTION)}
    found |= {name: value for name, value in config.items() if not name.endswith(SECTION)}
    seconds = {name: alias for alias, name in ALIASES.items() if name in defaults and name not in config}
    found |= {name: config[alias] for name, alias in seconds.items() if alias in config}
    if ROPE in defaults:
        found[ROPE] = _rope(config, defaults[ROPE])
    for name, section in defaults.items():
        if name.endswith(SECTION):
            found[name] = settings_of(cast("dict[str, Any]", config.get(name) or {}), section)
    return SimpleNamespace(**found)


def _rope(config: Mapping[str, Any], default: Mapping[str, Any]) -> dict[str, Any]:
    """Return the rotary parameters; older files have the base as a separate field and use the name ``rope_scaling``."""
    base = {"rope_theta": config["rope_theta"]} if "rope_theta" in config else {}
    return {**default, **base, **(config.get("rope_scaling") or config.get(ROPE) or {})}
