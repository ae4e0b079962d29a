"""What Qwen3-Omni's stages share of a checkpoint, and how a request becomes the prompt that the thinker eats.

Template, placeholders, features and rope positions are made as the reference makes them, off the step loop.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import Qwen3OmniMoeConfig, WhisperFeatureExtractor
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

from engine.core import MIC_RATE_HZ, AudioPart, ImagePart, Message, Request, TextPart
from engine.errors import ContextOverflow, RequestError, WeightsError
from engine.worker.chat import Chat
from engine.worker.nn.weights import Checkpoint, Reader, find, read_json
from engine.worker.stage import Place

ARCHITECTURE = "Qwen3OmniMoeForConditionalGeneration"
CONTEXT = 8192  # tokens of a prompt and its answer, unless the options say otherwise
PIECE = 256  # tokens of a prompt that one step prefills
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
LONGEST_SOUND_S, SHORTEST_SOUND_S = 300.0, 0.02
LARGEST_PICTURE = 64_000_000  # pixels


class Source:
    """The checkpoint as every stage sees it."""

    def __init__(self, place: Place) -> None:
        torch.set_num_threads(place.threads)
        folder = find(place.weights)
        self.checkpoint = Checkpoint(folder, ARCHITECTURE)
        logging.getLogger("transformers.modeling_rope_utils").setLevel(logging.ERROR)  # it does not know M-RoPE's keys
        self.config: Any = Qwen3OmniMoeConfig.from_pretrained(folder, local_files_only=True)
        self.device = torch.device(f"cuda:{place.device}" if place.device.isdigit() else place.device)
        if place.dtype not in DTYPES:
            raise WeightsError(f"dtype: {place.dtype!r} is neither float32 nor bfloat16")
        self.dtype = DTYPES[place.dtype]
        self.folder, self.slots = folder, place.slots
        self.context = int(place.options.get("context", min(CONTEXT, self.text.max_position_embeddings)))
        self.piece = int(place.options.get("piece", PIECE))

    @property
    def text(self) -> Any:
        return self.config.thinker_config.text_config

    @property
    def voices(self) -> dict[str, int]:
        return dict(self.config.talker_config.speaker_id or {}) if self.config.enable_audio_output else {}

    def reader(self, prefix: str, dtype: torch.dtype | None = None) -> Reader:
        return Reader(self.checkpoint, prefix, self.device, dtype or self.dtype)

    def voice(self, request: Request) -> int:
        """The id of the request's voice, the checkpoint's first where it names none."""
        name = (request.voice or next(iter(self.voices), "")).lower()
        if name not in self.voices:
            raise RequestError(
                f"voice: {request.voice!r} is not one of {', '.join(self.voices) or 'this model (mute)'}"
            )
        return self.voices[name]

    @cached_property
    def generation(self) -> dict[str, Any]:
        file = self.folder / "generation_config.json"
        return read_json(file) if file.exists() else {}

    @property
    def media_ids(self) -> tuple[int, ...]:
        """The placeholders of sound, pictures and video."""
        config = self.config.thinker_config
        return config.audio_token_id, config.image_token_id, config.video_token_id


@dataclass(slots=True)
class Prompt:
    """A request as the thinker eats it, made off the step loop.

    ``places`` float32 [3, ids] are the rope positions (time, height, width); ``spoken`` are the indices of the user's
    turns, which the talker hears again, at its own ``spoken_places``.
    """

    ids: NDArray[np.int64]
    places: NDArray[np.float32]
    spoken: NDArray[np.int64]
    spoken_places: NDArray[np.float32]
    lead: list[int]
    sounds: Any = None
    pictures: Any = None
    script: list[int] | None = None


class Prompter:
    """Requests to prompts: template, placeholders, features, positions."""

    def __init__(self, source: Source) -> None:
        self.source, self.chat = source, Chat(source.folder)
        settings = read_json(source.folder / "preprocessor_config.json")
        self._ears: Any = WhisperFeatureExtractor.from_dict(settings)
        sizes = (
            "patch_size",
            "merge_size",
            "temporal_patch_size",
            "size",
            "min_pixels",
            "max_pixels",
            "image_mean",
            "image_std",
        )
        self._eyes: Any = Qwen2VLImageProcessorPil(**{name: settings[name] for name in sizes if settings.get(name)})

    def prompt(self, request: Request, heard: NDArray[np.int16] | None) -> Prompt:
        """Raises RequestError for what cannot be served, ContextOverflow for too long a prompt."""
        messages, script = self._messages(request, heard)
        self._check_ids(messages)
        tools = () if request.tool_choice == "none" else request.tools
        ids = self.chat.prompt(messages, tools)
        config = self.source.config
        sounds, pictures = self._media(messages)
        counts: dict[int, list[int]] = {}
        if sounds is not None:
            lengths = sounds["attention_mask"].sum(-1)
            window = config.thinker_config.audio_config.n_window
            counts[config.thinker_config.audio_token_id] = [audio_tokens(n, window) for n in lengths]
        grids: list[tuple[int, int, int]] = []
        if pictures is not None:
            grids = [tuple(grid) for grid in pictures["image_grid_thw"].tolist()]
            merged = config.thinker_config.vision_config.spatial_merge_size**2
            counts[config.thinker_config.image_token_id] = [math.prod(grid) // merged for grid in grids]
        ids = _spread(ids, counts)
        if len(ids) + 2 > self.source.context:
            raise ContextOverflow(f"the prompt has {len(ids)} tokens; the context is {self.source.context}")
        spoken, start = self._spoken(ids)
        places = self._places(ids, grids)
        spoken_places = self._places([ids[i] for i in spoken], grids)
        return Prompt(
            np.array(ids), places, np.array(spoken, np.int64), spoken_places, ids[start : start + 3], sounds, pictures,
            None if script is None else self.chat.words(script),
        )  # fmt: skip

    def _messages(self, request: Request, heard: NDArray[np.int16] | None) -> tuple[list[Message], str | None]:
        """The conversation with the turn that was heard, and what is to be said as it stands."""
        messages = list(request.messages)
        if heard is not None:
            last = messages.pop() if messages and messages[-1].role == "user" else Message("user", ())
            messages.append(Message("user", (*last.parts, AudioPart(heard))))
        if messages and messages[-1].role == "assistant":
            words = "".join(part.text for part in messages.pop().parts if isinstance(part, TextPart))
            return messages or [Message("user", ())], words  # no template renders nothing at all
        return messages, None

    def _check_ids(self, messages: Sequence[Message]) -> None:
        size, media = self.source.text.vocab_size, self.source.media_ids
        for id in (id for message in messages for id in message.token_ids):
            if not 0 <= id < size or id in media:
                raise RequestError(f"token_ids: {id} is no word of this model")

    def _media(self, messages: Sequence[Message]) -> tuple[Any, Any]:
        """Features of everything that was heard and seen, made as the reference makes them: all at once."""
        parts = [part for message in messages if not message.token_ids for part in message.parts]
        waves = [_wave(part) for part in parts if isinstance(part, AudioPart) and part.pcm is not None]
        pixels = [_pixels(part) for part in parts if isinstance(part, ImagePart)]
        sounds = pictures = None
        if waves:
            sounds = self._ears(
                waves, sampling_rate=MIC_RATE_HZ, padding=True, truncation=False, return_attention_mask=True,
                return_tensors="pt",
            )  # fmt: skip
        if pixels:
            try:
                pictures = self._eyes(images=pixels, return_tensors="pt")
            except ValueError as error:
                raise RequestError(f"image: {error}") from None
        return sounds, pictures

    def _spoken(self, ids: Sequence[int]) -> tuple[list[int], int]:
        """The indices of all user turns, and where the last turn, the assistant's, begins."""
        config = self.source.config
        starts = [i for i, id in enumerate(ids) if id == config.im_start_token_id]
        spoken: list[int] = []
        for start, end in zip(starts, [*starts[1:], len(ids)], strict=True):
            if ids[start + 1] == config.user_token_id:
                spoken += range(start, end)
        return spoken, starts[-1]

    def _places(self, ids: Sequence[int], grids: Sequence[tuple[int, int, int]]) -> NDArray[np.float32]:
        """Rope positions [3, ids]: words and sounds count on; a picture stands still in time and spans its grid."""
        config = self.source.config.thinker_config
        merge, left = config.vision_config.spatial_merge_size, iter(grids)
        columns: list[NDArray[np.float32]] = []
        at, i = 0.0, 0
        while i < len(ids):
            if ids[i] == config.image_token_id:
                time, high, wide = next(left)
                shape = (time, high // merge, wide // merge)
                block = np.indices(shape, np.float32).reshape(3, -1)
                block[0] *= config.position_id_per_seconds
            else:
                run = i
                while run < len(ids) and ids[run] != config.image_token_id:
                    run += 1
                block = np.broadcast_to(np.arange(run - i, dtype=np.float32), (3, run - i))
            columns.append(block + np.float32(at))
            at, i = float(columns[-1].max()) + 1, i + block.shape[1]
        return np.concatenate(columns, 1) if columns else np.zeros((3, 0), np.float32)


def _spread(ids: Sequence[int], counts: dict[int, list[int]]) -> list[int]:
    """Every placeholder as often as what it stands for has rows."""
    left = {id: iter(numbers) for id, numbers in counts.items()}
    whole: list[int] = []
    for id in ids:
        whole += [id] * next(left[id]) if id in left else [id]
    return whole


def audio_tokens(frames: Any, window: int) -> int:
    """Rows that the encoder makes of so many mel frames: thirteen for each whole window pair, fewer for the rest."""
    rest = (int(frames) % (2 * window) - 1) // 2 + 1
    return ((rest - 1) // 2 + 1 - 1) // 2 + 1 + int(frames) // (2 * window) * 13


def _wave(part: AudioPart) -> NDArray[np.float32]:
    length_s = len(part.pcm) / MIC_RATE_HZ
    if not SHORTEST_SOUND_S <= length_s <= LONGEST_SOUND_S:
        raise RequestError(
            f"audio: {length_s:.2f} s; between {SHORTEST_SOUND_S} and {LONGEST_SOUND_S:.0f} s can be heard"
        )
    return np.asarray(part.pcm, np.float32) / np.float32(32768)


def _pixels(part: ImagePart) -> NDArray[np.uint8]:
    pixels = np.asarray(part.pixels)
    if pixels.ndim != 3 or pixels.shape[2] != 3 or not 0 < pixels.shape[0] * pixels.shape[1] <= LARGEST_PICTURE:
        raise RequestError(f"image: a picture of shape {list(pixels.shape)} cannot be seen (height, width, 3 colours)")
    return pixels
