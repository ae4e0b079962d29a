"""Stage options of Qwen3-TTS, and their checks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engine.deployment.config import build
from engine.errors import ConfigError
from engine.worker.stage import switched
from engine.worker.tts.reference_voice import Clone, check_clones

LAYOUTS = ("streaming", "whole")


@dataclass(frozen=True, slots=True, kw_only=True)
class Design:
    """A voice described by a sentence: one entry of ``options.designs``."""

    name: str
    """Name that requests use."""
    instruct: str
    """Description, such as age, sex, mood, accent and speaking rate."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3TtsOptions:
    """Stage ``options`` of the family."""

    voice: str = ""
    """Default voice; empty: the first one."""
    language: str = ""
    """Language of the answers, as BCP 47 or the checkpoint's name; empty: inferred from the text."""
    instruct: str = ""
    """Speaking style for a CustomVoice speaker, such as a mood."""
    designs: tuple[Design, ...] = ()
    """Voices of a VoiceDesign checkpoint."""
    clones: tuple[Clone, ...] = ()
    """Voices of a Base checkpoint, made from recordings. A transcript (``text``) improves the similarity."""
    layout: str = "streaming"
    """``streaming``: text enters as it arrives. ``whole``: all text precedes the first frame."""
    context: int = 2560
    """Maximum rows of an answer: voice, text and frames."""
    piece: int = 256
    """Maximum prompt rows per step."""
    graphs: bool | str = "auto"
    """CUDA graphs: ``auto`` (on a GPU), ``on`` or ``off``."""
    sound_dtype: str = "float32"
    """dtype of code2wav: ``float32``, ``tfloat32``, ``float16`` or ``bfloat16``, which causes audible errors."""
    kernels: bool | str = "auto"
    """Triton kernels: ``auto`` (on NVIDIA GPUs from the A100 on; run on an H200 only), ``on`` or ``off``."""

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> Qwen3TtsOptions:
        """Parse and check a stage's options. Raises ConfigError."""
        options: Qwen3TtsOptions = build(cls, dict(mapping), "options")
        if options.layout not in LAYOUTS:
            raise ConfigError(f"options.layout: {options.layout!r:.80} is not one of streaming, whole")
        for option in ("graphs", "kernels"):
            switched(option, getattr(options, option), False)
        if options.context < 256 or options.piece < 1:
            raise ConfigError("options: context must be at least 256, and piece at least 1")
        check_clones(options.clones, ())
        names = [design.name.strip() for design in options.designs]
        for i, design in enumerate(options.designs):
            if not names[i] or names[i] in names[:i]:
                raise ConfigError(
                    f"options.designs[{i}].name: {design.name!r:.80} is empty or the name of another voice"
                )
            if not design.instruct.strip():
                raise ConfigError(f"options.designs[{i}].instruct: describe the voice in a sentence")
        return options
