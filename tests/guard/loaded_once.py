"""What the built-in model reads from its files is read once a process, not once for each of the tests' hundred engines.

The product loads at each start what it then keeps; a third of a second for the networks, as much for the decoders of
its ears. Networks hold no state between runs. Decoders do, and Parley gives the same ones to one user after the other:
here they go from one test's ears to the next one's, too. Another folder, or a file that was changed, is read anew.
"""

from __future__ import annotations

import weakref
from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

WEIGHTS = Path(__file__).parents[2] / "engine" / "weights" / "nano"
OPTIONS = ("intra_op_num_threads", "inter_op_num_threads", "enable_mem_pattern")
"""What the product says of a session besides its file."""


@pytest.fixture(scope="session", autouse=True)
def loaded_once() -> Iterator[None]:
    """Built-in weights and decoders outlive the test that loaded them."""
    import onnxruntime  # here, not in every process that only collects tests

    from engine.worker.models.nano.ears import Ears

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(onnxruntime, "InferenceSession", Networks(onnxruntime.InferenceSession))
        decoders = Decoders(Ears._decoder)
        patch.setattr(Ears, "_decoder", lambda ears, language, beam: decoders.take(ears, language, beam))
        yield


class Networks:
    """Makes ONNX sessions; those of the built-in weights once."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._kept: dict[Any, Any] = {}

    def __call__(self, path: Any, options: Any = None, **rest: Any) -> Any:
        if options is None or not isinstance(path, str) or not Path(path).is_relative_to(WEIGHTS):
            return self._make(path, options, **rest)
        key = (path, Path(path).stat().st_mtime_ns, *(getattr(options, name) for name in OPTIONS))
        if key not in self._kept:
            self._kept[key] = self._make(path, options, **rest)
        return self._kept[key]


class Decoders:
    """Makes the decoders of ears; those of ears that are gone are used again."""

    def __init__(self, make: Any) -> None:
        self._make = make
        self._spare: defaultdict[Any, list[Any]] = defaultdict(list)
        self._first_mean: dict[Any, str] = {}

    def take(self, ears: Any, language: str, beam: float) -> Any:
        key = (ears._folder, language, beam)
        try:
            decoder = self._spare[key].pop()
        except IndexError:
            decoder = self._make(ears, language, beam)
            self._first_mean[key] = decoder.get_cmn()
        if ears._folder.is_relative_to(WEIGHTS):
            weakref.finalize(ears, self._give_back, key, decoder)
        return decoder

    def _give_back(self, key: Any, decoder: Any) -> None:
        with suppress(RuntimeError):  # no utterance was left open
            decoder.end_utt()
        decoder.set_cmn(self._first_mean[key])
        self._spare[key].append(decoder)
