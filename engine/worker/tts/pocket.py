"""A voice of Pocket TTS as it lies in a folder, and its sound codec frame by codec frame.

The names of files are those of the models that Kyutai publishes, ``languages/english/model.safetensors`` and so on.
Knows no stage.
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
"""Languages as BCP 47, by the beginnings of the names of the package's models."""
NOTHING: Wave = np.empty(0, np.float32)


@dataclass(frozen=True, slots=True)
class PocketFiles:
    """The files of a folder. ``settings`` is a YAML file, or the name of one that the package has."""

    home: Path
    settings: Path | str
    tokenizer: Path
    embeddings: Mapping[str, Path]
    """The embeddings that the model makes of a recording, by the voice's name."""

    @property
    def weights(self) -> Path:
        return self.home / "model.safetensors"

    @property
    def language(self) -> str:
        """The language as BCP 47; empty where nothing says it."""
        name = self.settings.stem if isinstance(self.settings, Path) else self.settings
        return next((tag for language, tag in LANGUAGES.items() if name.startswith(language)), "")


def pocket_files(folder: Path | None, model: str = "") -> PocketFiles:
    """The voice in a folder: one of the package's models by its name, or by its own YAML file, or by its folder's name.

    Raises ConfigError without a folder, WeightsError where something is missing.
    """
    folder = weights_folder(folder, "tts.pocket", "a voice of Pocket TTS")
    found = sorted(folder.rglob("model.safetensors"))
    if len(found) != 1:
        what = "several model.safetensors" if found else "no model.safetensors"
        raise WeightsError(f"The voice folder {folder} has {what}; name a folder that has one.")
    home = found[0].parent
    tokenizers = [path for name in ("tokenizer.json", "tokenizer.model") if (path := home / name).is_file()]
    if not tokenizers:
        raise WeightsError(f"The voice folder {home} has no tokenizer.json: fetch it from where the weights came.")
    settings = sorted({*home.glob("*.yaml"), *folder.glob("*.yaml")})
    if len(settings) > 1 and not model:
        names = ", ".join(path.name for path in settings)
        raise WeightsError(f"The voice folder {folder} has several YAML files ({names}): leave one of them.")
    embeddings = {path.stem: path for path in sorted((home / "embeddings").glob("*.safetensors"))}
    return PocketFiles(home, model or (settings[0] if settings else home.name), tokenizers[0], embeddings)


class PocketVoice:
    """A loaded model of Pocket TTS.

    The library's own stream makes a clause as fast as it can, in two threads, from one source of randomness; two of
    them at once are forbidden. Here its parts are called for a codec frame at a time, so that answers take turns and
    one that is left stops. What comes is to the sample what ``generate_audio`` gives with ``torch.manual_seed(seed)``.
    """

    def __init__(self, files: PocketFiles, threads: int) -> None:
        os.environ["HF_HUB_OFFLINE"] = "1"  # only paths of this machine reach it; this is the second lock
        library = pocket_library()
        import torch

        logging.getLogger(PACKAGE).setLevel(logging.ERROR)  # its warnings quote what is said
        self._torch: Any = torch
        self._chunking: Any = importlib.import_module(f"{PACKAGE}.models.text_chunking")
        self._states: Any = importlib.import_module(f"{PACKAGE}.modules.stateful_module")
        self._model: Any = _loaded(library.TTSModel, files)
        self.rate_hz: int = self._model.sample_rate
        torch.set_num_threads(threads)  # to import the library sets it to one

    def embedded(self, path: Path) -> Any:
        """A voice from a file of it. Raises WeightsError for one of another model."""
        try:
            state = self._model.get_state_for_audio_prompt(path)
        except Exception as error:  # whatever the library raises of a file that it cannot read
            raise WeightsError(f"{path} cannot be read ({error!s:.200}): fetch it again.") from error
        wanted = self._states.init_states(self._model.flow_lm, 1, 1)
        if _shapes(state) != _shapes(wanted):
            raise WeightsError(f"{path} belongs to another model than {self._model.origin.name}: fetch both again.")
        return state

    def cloned(self, wave: Wave) -> Any:
        """A voice from a recording of it, mono at ``rate_hz``. Raises WeightsError where the model cannot do that."""
        if not any(bool(weights.any()) for weights in self._model.mimi.encoder.parameters()):
            raise WeightsError(
                "options.clones: these weights are published without voice cloning; fetch those of kyutai/pocket-tts, "
                "after accepting its terms there, or leave the clones out."
            )
        return self._model.get_state_for_audio_prompt(self._torch.from_numpy(wave)[None])

    def frames(self, text: str, voice: Any, seed: int) -> Iterator[Wave]:
        """Yield the sound of a text, a codec frame at a time; between its parts, an empty one."""
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
        """One sentence, with ``after`` frames behind the one at which the model says that it has ended."""
        torch, model = self._torch, self._model
        state = {module: {name: value.clone() for name, value in part.items()} for module, part in voice.items()}
        tokens = model.flow_lm.conditioner.prepare(prompt)
        longest = model._estimate_max_gen_len(tokens.shape[1])
        model._expand_kv_cache(state, model._flow_lm_current_end(state) + tokens.shape[1] + longest)
        with noise.drawn():
            model._run_flow_lm_and_increment_step(model_state=state, text_tokens=tokens)
        yield NOTHING
        decode = self._decoder(longest)
        latent = torch.full((1, 1, model.flow_lm.ldim), float("nan"), dtype=model.flow_lm.dtype)  # where it begins
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
        """Return the decoder that makes the sound of a sentence's codec frames, one after the other."""
        torch, model = self._torch, self._model
        steps = int(model.mimi.encoder_frame_rate / model.mimi.frame_rate)
        state = self._states.init_states(model.mimi, 1, longest * steps)
        fade = torch.linspace(0, 1, self.rate_hz // 200)  # a fresh decoder clicks

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
    """One answer's randomness. The library draws from torch's own source, of which each answer has a state."""

    def __init__(self, torch: Any, seed: int) -> None:
        self._torch = torch
        self._state = torch.Generator().manual_seed(seed).get_state()

    @contextlib.contextmanager
    def drawn(self) -> Generator[None]:
        """Make this answer's randomness the one that is drawn from meanwhile."""
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
        except Exception as error:  # whatever the library raises of files that do not fit each other
            raise unloadable(f"The voice in {files.home}", error) from error


def _settings(files: PocketFiles) -> dict[str, Any]:
    """The model's settings, in which every path is one of this machine."""
    path = files.settings if isinstance(files.settings, Path) else _packaged(files.settings)
    try:
        settings = yaml.safe_load(path.read_text(encoding="utf-8"))
        settings["flow_lm"]["lookup_table"]["tokenizer_path"] = str(files.tokenizer.absolute())
        for part in (settings, settings["flow_lm"], settings["mimi"]):
            part["weights_path"] = None
    except (OSError, ValueError, yaml.YAMLError, TypeError, KeyError) as error:
        raise WeightsError(f"{path} is not a model of Pocket TTS: {error!s:.200}") from error
    tokenizers = "tokenizers" if files.tokenizer.suffix == ".json" else "sentencepiece"
    settings["flow_lm"]["lookup_table"]["tokenizer"] = tokenizers
    return settings | {"weights_path": str(files.weights.absolute()), "weights_path_without_voice_cloning": None}


def _packaged(name: str) -> Path:
    """The YAML file of one of the package's models. Raises ConfigError where it has none of that name."""
    spec = importlib.util.find_spec(PACKAGE)
    assert spec is not None
    assert spec.origin is not None
    known = {path.stem: path for path in Path(spec.origin).parent.glob("config/*.yaml")}
    if name not in known:
        raise ConfigError(
            f"options.model: Pocket TTS has no model {name!r:.80} ({nearest(name, sorted(known))}); "
            "say which one lies in the folder, or put its YAML file there"
        )
    return known[name]


def _shapes(state: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[int, ...]]:
    """Return the shape of each cache in a voice, but for its length."""
    return {
        name: (*part["cache"].shape[:2], *part["cache"].shape[3:]) for name, part in state.items() if "cache" in part
    }
