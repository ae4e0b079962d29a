"""The options of the family's stages, and how they are checked. Knows no checkpoint."""

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
    """A voice that a sentence describes, as an entry of ``options.designs``."""

    name: str
    """The name that requests use."""
    instruct: str
    """The description: age, sex, mood, accent, speed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Qwen3TtsOptions:
    """The ``options`` of the stages."""

    voice: str = ""
    """The voice where a request names none; empty: the first one."""
    language: str = ""
    """The language of the answers, as BCP 47 or as the checkpoint calls it; empty: the model hears it from the text."""
    instruct: str = ""
    """The way in which a CustomVoice speaker is to say it: a mood, a speed."""
    designs: tuple[Design, ...] = ()
    """Voices that a VoiceDesign checkpoint speaks as they are described."""
    clones: tuple[Clone, ...] = ()
    """Voices that a Base checkpoint makes from recordings; where the words are told (``text``), more closely."""
    layout: str = "streaming"
    """``streaming``: text goes in as it comes. ``whole``: all of it stands before the first frame."""
    context: int = 2560
    """Rows of one answer: voice, text and frames."""
    piece: int = 256
    """Rows of prompts that one step takes in."""
    graphs: bool | str = "auto"
    """Whether a frame is one CUDA graph: ``auto`` (where there is a GPU), ``on`` or ``off``."""
    sound_dtype: str = "float32"
    """The dtype in which code2wav computes, whatever the talker does: ``float32``, ``tfloat32``, ``float16`` or
    ``bfloat16``. The last is heard."""
    kernels: bool | str = "auto"
    """Whether kernels in Triton attend, and compute what lies between two products: ``auto`` (on NVIDIA's GPUs from the
    A100 on; they have run on an H200 alone), ``on`` or ``off``."""

    @classmethod
    def of(cls, mapping: Mapping[str, Any]) -> Qwen3TtsOptions:
        """Read the options of a configuration. Raises ConfigError."""
        options: Qwen3TtsOptions = build(cls, dict(mapping), "options")
        if options.layout not in LAYOUTS:
            raise ConfigError(f"options.layout: {options.layout!r:.80} is neither streaming nor whole")
        for option in ("graphs", "kernels"):
            switched(option, getattr(options, option), False)
        if options.context < 256 or options.piece < 1:
            raise ConfigError("options: context must be 256 rows at least, and piece one")
        check_clones(options.clones, ())
        names = [design.name.strip() for design in options.designs]
        for i, design in enumerate(options.designs):
            if not names[i] or names[i] in names[:i]:
                raise ConfigError(f"options.designs[{i}].name: {design.name!r:.80} is empty, or another voice's name")
            if not design.instruct.strip():
                raise ConfigError(f"options.designs[{i}].instruct: describe the voice in a sentence")
        return options
