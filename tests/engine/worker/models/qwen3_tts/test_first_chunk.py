"""What a first chunk costs beside the forwards that it cannot do without."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from engine.chunk import Audio, Codes
from engine.worker.codec import Window
from engine.worker.models.qwen3_tts.talker import Begin
from engine.worker.models.qwen3_tts.text import TtsTextToken
from engine.worker.nn.sampling_params import BatchSamplingParams
from engine.worker.nn.slots import Batch
from engine.worker.stage_request import StageRequest
from tests.engine.worker.models.qwen3_tts.driven import Frames, asked, stages
from tests.oracles.qwen3_tts import BIG
from tests.oracles.tiny_qwen3_tts import Sizes

ROUNDS = 40


@pytest.mark.bench
def test_a_first_chunk_costs_hardly_more_than_its_forwards(checkpoint: Callable[[Sizes], Path]) -> None:
    """From the first token on, of a voice whose prompt is in: at most 1.15 of the bare forwards, or 3 ms more."""
    talker, code2wav = stages(checkpoint(BIG))
    whole, bare = list[float](), list[float]()
    for _ in range(ROUNDS):
        reqs = begun(talker), StageRequest(asked(), 0, Frames())
        code2wav.open(reqs[1])
        whole.append(timed(lambda reqs=reqs: spoken(talker, code2wav, *reqs)))
        req = begun(talker)
        bare.append(timed(lambda req=req: forwards(talker, code2wav, req)))
    first, least = statistics.median(whole), statistics.median(bare)
    print(f"first chunk {1e3 * first:.2f} ms, its forwards {1e3 * least:.2f} ms: {first / least:.2f}")
    assert first <= max(1.15 * least, least + 0.003)


def timed(work: Callable[[], Any]) -> float:
    began_s = time.perf_counter()
    work()
    return time.perf_counter() - began_s


def begun(talker: Any) -> StageRequest:
    """A request whose voice's prompt is in."""
    req = StageRequest(asked(), 0, Frames())
    talker.open(req)
    req.pending.append(Begin())
    talker.step([req])
    return req


def spoken(talker: Any, code2wav: Any, one: StageRequest, other: StageRequest) -> None:
    one.pending.append(TtsTextToken(100, 1))
    ((codes,),) = talker.step([one])
    assert isinstance(codes, Codes)
    other.pending.append(Window(codes.frames))
    ((audio,),) = code2wav.step([other])
    assert isinstance(audio, Audio)


@torch.inference_mode()
def forwards(talker: Any, code2wav: Any, req: StageRequest) -> None:
    """A row of the talker, the predictor's fifteen, a frame of the codec."""
    batch = Batch()
    row = talker.first_embeddings([req], [100])[0]
    batch.add(0, req.state.num_computed_tokens, row, np.full((3, 1), req.state.position, np.float32))
    hidden = talker.net.append(batch)
    frames = talker.net.frames([0], hidden, BatchSamplingParams.of([req.state.params], hidden.device), [0])
    code2wav.open(req)
    code2wav.decode([req], frames[None], fresh=True)
