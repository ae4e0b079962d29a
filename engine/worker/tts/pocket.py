"""Pocket TTS voices: folder check, and synthesis one codec frame at a time.

File names are the ones of Kyutai's published models, for example ``languages/english/model.safetensors``.
"""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import os
import tempfile
from collections.abc import Generator, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import yaml

from engine.core import Wave
from engine.deployment.did_you_mean import nearest
from engine.errors import ConfigError, WeightsError
from engine.worker.libraries.weights_folder import unloadable, weights_folder
from engine.worker.tts.pocket_library import PACKAGE, pocket_library

LANGUAGES = {
    "dutch": "nl",
    "english": "en",
    "french": "fr",
    "german": "de",
    "italian": "it",
    "portuguese": "pt",
    "spanish": "es",
}
"""BCP 47 language tags by the prefixes of the package's model names."""
NOTHING: Wave = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class PocketFiles:
    """Files of a voice folder."""

    home: Path
    """Folder of the weights."""
    settings: Path | str
    """A YAML file, or the name of a configuration inside the package."""
    tokenizer: Path
    embeddings: Mapping[str, Path]
    """Files of precomputed voice embeddings, by voice name."""

    @property
    def weights(self) -> Path:
        return self.home / "model.safetensors"

    @property
    def language(self) -> str:
        """BCP 47 language tag, or "" if the name of the settings does not include it."""
        name = self.settings.stem if isinstance(self.settings, Path) else self.settings
        return next((tag for language, tag in LANGUAGES.items() if name.startswith(language)), "")


def pocket_files(folder: Path | None, model: str = "") -> PocketFiles:
    """Find a voice's files in a folder.

    The configuration is, in this order: the package's model called ``model``, the folder's own YAML file, the package's
    model with the folder's name. Raises ConfigError without a folder, WeightsError for missing files.
    """
    folder = weights_folder(folder, "tts.pocket", "a voice of Pocket TTS")
    found = sorted(folder.rglob("model.safetensors"))
    if len(found) != 1:
        what = "several model.safetensors" if found else "no model.safetensors"
        raise WeightsError(f"The voice folder {folder} has {what}. Name a folder with exactly one.")
    home = found[0].parent
    tokenizers = [path for name in ("tokenizer.json", "tokenizer.model") if (path := home / name).is_file()]
    if not tokenizers:
        raise WeightsError(
            f"The voice folder {home} has no tokenizer.json. Download it from the source of the weights."
        )
    settings = sorted({*home.glob("*.yaml"), *folder.glob("*.yaml")})
    if len(settings) > 1 and not model:
        names = ", ".join(path.name for path in settings)
        raise WeightsError(
            f"The voice folder {folder} has several YAML files ({names}). Keep one of them, or set options.model."
        )
    embeddings = {path.stem: path for path in sorted((home / "embeddings").glob("*.safetensors"))}
    return PocketFiles(home, model or (settings[0] if settings else home.name), tokenizers[0], embeddings)


class PocketVoice:
    """A loaded Pocket TTS model.

    The library's own streaming runs a clause at full speed in two threads with one global random generator, and allows
    no second stream. This class calls its parts one codec frame at a time instead, so that several answers take turns
    and an abandoned one stops. The samples equal those of ``generate_audio`` after ``torch.manual_seed(seed)``.
    """

    def __init__(self, files: PocketFiles, threads: int) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"  # local paths are already enforced; this also blocks downloads
        library = pocket_library()
        import torch

        logging.getLogger(PACKAGE).setLevel(logging.ERROR)  # its warnings contain the spoken text
        self._torch: Any = torch
        self._chunking: Any = importlib.import_module(f"{PACKAGE}.models.text_chunking")
        self._states: Any = importlib.import_module(f"{PACKAGE}.modules.stateful_module")
        self._model: Any = _loaded(library.TTSModel, files)
        self.rate_hz: int = self._model.sample_rate
        torch.set_num_threads(threads)  # importing the library sets it to 1

    def embedded(self, path: Path) -> Any:
        """Load a voice from an embedding file. Raises WeightsError if it is unreadable or belongs to another model."""
        try:
            state = self._model.get_state_for_audio_prompt(path)
        except Exception as error:  # the library raises many types for an unreadable file
            raise WeightsError(f"{path} cannot be read ({error!s:.200}). Download it again.") from error
        wanted = self._states.init_states(self._model.flow_lm, 1, 1)
        if _shapes(state) != _shapes(wanted):
            raise WeightsError(f"{path} belongs to another model than {self._model.origin.name}. Download both again.")
        return state

    def cloned(self, wave: Wave) -> Any:
        """Create a voice from a mono recording at ``rate_hz``. Raises WeightsError if the weights do not support
        cloning.
        """
        if not any(bool(weights.any()) for weights in self._model.mimi.encoder.parameters()):
            raise WeightsError(
                "options.clones: these weights do not support voice cloning. Download those of kyutai/pocket-tts "
                "after accepting its terms, or remove the clones."
            )
        return self._model.get_state_for_audio_prompt(self._torch.from_numpy(wave)[None])

    def frames(self, text: str, voice: Any, seed: int) -> Iterator[Wave]:
        """Yield a text's audio one codec frame at a time, with empty arrays in between that let other answers run."""
        model, noise = self._model, _Noise(self._torch, seed)
        form = (
            model.pad_with_spaces_for_short_inputs,
            model.remove_semicolons,
            model.append_terminal_punctuation,
            model.capitalize_first_letter,
            model.replace_characters,
        )
        limits = importlib.import_module(f"{PACKAGE}.default_parameters")
        tokenizer = model.flow_lm.conditioner.tokenizer
        for sentence in self._chunking.split_into_best_sentences(tokenizer, text, limits.MAX_TOKEN_PER_CHUNK, *form):
            prompt, guess = self._chunking.prepare_text_prompt(sentence, *form)
            recommended = model.model_recommended_frames_after_eos
            yield from self._sentence(prompt, voice, guess + 2 if recommended is None else recommended, noise)

    def _sentence(self, prompt: str, voice: Any, after: int, noise: _Noise) -> Iterator[Wave]:
        """Yield one sentence's audio, with ``after`` more frames once the model signals its end."""
        torch, model = self._torch, self._model
        state = {module: {name: value.clone() for name, value in part.items()} for module, part in voice.items()}
        tokens = model.flow_lm.conditioner.prepare(prompt)
        longest = model._estimate_max_gen_len(tokens.shape[1])
        model._expand_kv_cache(state, model._flow_lm_current_end(state) + tokens.shape[1] + longest)
        with noise.drawn():
            model._run_flow_lm_and_increment_step(model_state=state, text_tokens=tokens)
        yield NOTHING
        decode = self._decoder(longest)
        # NaN marks the first frame.
        latent = torch.full((1, 1, model.flow_lm.ldim), float("nan"), dtype=model.flow_lm.dtype)
        last = longest
        for n in range(longest):
            with noise.drawn():
                latent, ended = model._run_flow_lm_and_increment_step(model_state=state, backbone_input_latents=latent)
            if last == longest and n >= model._MIN_FRAMES_BEFORE_EOS and ended.item():
                last = n + after
            if n >= last:
                return
            yield NOTHING
            yield decode(latent)

    def _decoder(self, longest: int) -> Any:
        """Return a function that decodes a sentence's codec frames in order."""
        torch, model = self._torch, self._model
        steps = int(model.mimi.encoder_frame_rate / model.mimi.frame_rate)
        state = self._states.init_states(model.mimi, 1, longest * steps)
        fade = torch.linspace(0, 1, self.rate_hz // 200)  # hides the click of a fresh decoder

        def decode(latent: Any) -> Wave:
            nonlocal fade
            with torch.no_grad():
                sound = model.mimi.decode_from_latent(latent * model.flow_lm.emb_std + model.flow_lm.emb_mean, state)
                sound[..., : len(fade)] *= fade
                self._states.increment_steps(model.mimi, state, increment=steps)
            fade = fade[:0]
            return sound[0, 0].numpy()

        return decode


class _Noise:
    """Random generator state of one answer. The library draws from torch's global generator, so the state is swapped
    in.
    """

    def __init__(self, torch: Any, seed: int) -> None:
        self._torch = torch
        self._state = torch.Generator().manual_seed(seed).get_state()

    @contextlib.contextmanager
    def drawn(self) -> Generator[None]:
        """Use this answer's generator state within the block."""
        others = self._torch.get_rng_state()
        self._torch.set_rng_state(self._state)
        try:
            with self._torch.no_grad():
                yield
        finally:
            self._state = self._torch.get_rng_state()
            self._torch.set_rng_state(others)


def _loaded(kind: Any, files: PocketFiles) -> Any:
    settings = _settings(files)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, f"{files.home.name}.yaml")
        path.write_text(yaml.safe_dump(settings), encoding="utf-8")
        try:
            return kind.load_model(config=path)
        except Exception as error:  # the library raises many types for mismatched files
            raise unloadable(f"The voice in {files.home}", error) from error


def _settings(files: PocketFiles) -> dict[str, Any]:
    """Return the model's settings with local paths only."""
    path = files.settings if isinstance(files.settings, Path) else _packaged(files.settings)
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        settings["flow_lm"]["lookup_table"]["tokenizer_path"] = str(files.tokenizer.absolute())
        for part in (settings, settings["flow_lm"], settings["mimi"]):
            part["weights_path"] = None
    except (OSError, ValueError, yaml.YAMLError, TypeError, KeyError) as error:
        raise WeightsError(f"{path} is not a configuration of a Pocket TTS model: {error!s:.200}") from error
    tokenizers = "tokenizers" if files.tokenizer.suffix == ".json" else "sentencepiece"
    settings["flow_lm"]["lookup_table"]["tokenizer"] = tokenizers
    return settings | {"weights_path": str(files.weights.absolute()), "weights_path_without_voice_cloning": None}


def _packaged(name: str) -> Path:
    """Return one of the package's YAML files. Raises ConfigError if there is none of that name."""
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    known = {path.stem: path for path in Path(spec.origin).parent.glob("config/*.yaml")}
    if name not in known:
        raise ConfigError(
            f"options.model: Pocket TTS has no model {name!r:.80} ({nearest(name, sorted(known))}). "
            "Name the folder's model, or add its YAML file to the folder."
        )
    return known[name]


def _shapes(state: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each cache in a voice, without the length dimension."""
    return {
        name: (*part["cache"].shape[:2], *part["cache"].shape[3:]) for name, part in state.items() if "cache" in part
    }
