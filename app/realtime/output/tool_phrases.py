"""The lines that the user hears while a tool runs, in several languages (tool_phrases.toml)."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from app.realtime.output.pending_calls import WaitLine


def text_of(line: WaitLine, language: str) -> str:
    """Return the words of a line in a language (BCP 47); "" for a sound, and for a language without phrases."""
    phrases = _phrases().get(language.partition("-")[0].lower(), {})
    match line.kind:
        case "sound":
            return ""
        case "preamble":
            return phrases.get("preamble", "") if line.options.preamble is None else line.options.preamble
        case "progress":
            lines = phrases.get("progress", []) if line.options.progress is None else line.options.progress
            return lines[line.number % len(lines)] if lines else ""


@cache
def _phrases() -> Mapping[str, Any]:
    return tomllib.loads(Path(__file__).with_name("tool_phrases.toml").read_text(encoding="utf-8"))
