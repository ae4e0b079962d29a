"""The built-in model's files are read once for all tests of a process, and carry nothing from one test to the next."""

from __future__ import annotations

import gc
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from engine.worker.models.nano.ears import WEIGHTS, Ears
from engine.worker.models.nano.speech_input import is_supported
from engine.worker.models.nano.voice import session
from engine.worker.stage import StageConfig


def test_a_built_in_network_is_read_once_and_one_of_another_folder_anew(tmp_path: Path) -> None:
    one = session(StageConfig(), "code2wav")
    assert session(StageConfig(), "code2wav") is one
    assert session(StageConfig(threads=2), "code2wav") is not one
    shutil.copy(WEIGHTS / "code2wav.onnx", tmp_path)
    assert session(StageConfig(weights=tmp_path), "code2wav") is not session(StageConfig(weights=tmp_path), "code2wav")


@pytest.mark.skipif(not is_supported(), reason="pocketsphinx is not here")
def test_the_next_ears_get_the_decoders_of_those_that_are_gone_as_if_they_were_new() -> None:
    gc.collect()  # ears that earlier tests have left would give theirs back with these, and on top of them
    ears = Ears(StageConfig())
    before, mean = {id(decoder) for decoder in decoders(ears)}, ears._first_mean
    for decoder in decoders(ears):
        leave_in_mid_word(decoder)
    del ears
    gc.collect()
    again = Ears(StageConfig())
    assert before & {id(decoder) for decoder in decoders(again)}
    assert {decoder.get_cmn() for decoder in decoders(again)} == {mean}


def leave_in_mid_word(decoder: Any) -> None:
    decoder.set_cmn("1,2,3,4,5,6,7,8,9,10,11,12,13")
    decoder.start_utt()
    decoder.process_raw(np.ones(16_000, np.int16).tobytes())


def decoders(ears: Ears) -> list[Any]:
    return [ears._scout, *(one for search in ears._free for one in (search.requests, search.phones))]
