"""What a GPU asks of the family, without one: nothing of the CPU among its tensors, no wait but at the end of a step.

On a device that is pretended (tests/worker/pretend.py): it cannot show that a capture succeeds or how fast it is.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from typing import Any

import numpy as np
import pytest
import torch

from engine import Request, Sampling
from engine.errors import EngineError
from engine.stream import Stream
from engine.worker.models.qwen3_omni import FAMILY, talker_net
from engine.worker.nn.device import put
from engine.worker.nn.replay import Replay
from engine.worker.nn.sampler import penalised
from engine.worker.stage import Place, Seat, Stage
from tests.oracles.talk import request
from tests.worker.models.qwen3_omni.cases import PROMPTS, TONE, Folder
from tests.worker.pretend import Device, pretended


class Frames:
    """The chunk policy: as many frames as have come, up to two."""

    def size(self, count: int) -> int:
        return 1 + (count > 0)

    def hurry(self) -> bool:
        return False


Steps = list[tuple[str, int, Counter[tuple[str, str]]]]
"""Of each step its stage, how many seats it had, and where it waited for the device."""


def stages(folder: Any, device: str, dtype: str = "float32", **options: Any) -> list[Stage]:
    place = Place(folder, device, dtype, slots=6, options={"context": 1024, "piece": 64, **options})
    return sorted((make(place) for make in FAMILY.stages.values()), key=lambda stage: stage.info.order)


async def drive(line: Sequence[Stage], asked: Sequence[Request], device: Device | None = None) -> tuple[Any, Steps]:
    """Answers (token ids, codes, sound) of requests that go through the stages side by side, in this very thread."""
    seats = [[Seat(one, slot, Frames()) for _ in line] for slot, one in enumerate(asked)]
    streams = [[Stream(4096) for _ in line] for _ in asked]
    said = [([], [], []) for _ in asked]
    steps: Steps = []

    async def bridge(stage: Stage, seat: Seat, inputs: Stream) -> None:
        async with aclosing(stage.bridge(seat, inputs)) as rows:
            async for row in rows:
                seat.rows.append(row)
        seat.ended = True

    def step(at: int, stage: Stage, ready: list[int]) -> None:
        if device is not None:
            device.taken()
        results = stage.step([seats[i][at] for i in ready])
        steps.append((stage.info.name, len(ready), Counter() if device is None else device.taken()))
        for i, chunks in zip(ready, results, strict=True):
            assert not isinstance(chunks, EngineError), chunks
            for chunk in chunks:
                note(i, chunk)
                if at + 1 < len(line) and chunk.kind in stage.info.feeds:
                    streams[i][at + 1].put(chunk)
            if seats[i][at].done and at + 1 < len(line):
                streams[i][at + 1].close()

    def note(i: int, chunk: Any) -> None:
        if chunk.kind == "text":
            said[i][0].extend(chunk.meta["ids"])
        elif chunk.kind in ("codes", "audio"):
            said[i][1 + (chunk.kind == "audio")].append(chunk.data)

    async with asyncio.TaskGroup() as bridges:
        for row, inputs in zip(seats, streams, strict=True):
            for stage, seat, stream in zip(line, row, inputs, strict=True):
                stage.open(seat)
                bridges.create_task(bridge(stage, seat, stream), name=stage.info.name)
            inputs[0].close()
        while not all(row[-1].done for row in seats):
            await asyncio.sleep(0.001)
            for at, stage in reversed(list(enumerate(line))):
                if ready := [i for i, row in enumerate(seats) if row[at].ready]:
                    step(at, stage, ready)
                    break
    return [(ids, np.concatenate(codes).tolist(), np.concatenate(wave)) for ids, codes, wave in said], steps


def asked(*titles: str) -> list[Request]:
    """Greedy and drawn."""
    return [
        request(f"{i}", PROMPTS[title], 6, 7, sampling=Sampling(greedy=i % 2 == 0, temperature=1.0, seed=i))
        for i, title in enumerate(titles)
    ]


TEXTS = ("text", "bare", "history", "text")
MEDIA = ("audio", "image", "video", "audio and image")


def watch(patch: pytest.MonkeyPatch, device: Device) -> list[Counter[tuple[str, str]]]:
    """The waits inside of what a graph would capture, as they come."""
    computed = Replay.computed
    inside: list[Counter[tuple[str, str]]] = []

    def watched(self: Replay, table: torch.Tensor, reach: int) -> torch.Tensor:
        before = len(device.waits)
        found = computed(self, table, reach)
        inside.append(Counter(device.waits[before:]))
        return found

    patch.setattr(Replay, "computed", watched)
    return inside


def most(steps: Steps, stage: str) -> int:
    """How often a step of a stage waited at most, apart from the encoders."""
    return max(
        sum(n for (_, where), n in waits.items() if "encoders.py" not in where)
        for name, _, waits in steps
        if name == stage
    )


@pytest.mark.parametrize("titles", [TEXTS, MEDIA], ids=["text", "media"])
@pytest.mark.parametrize("graphs", [True, False])
def test_steps_wait_for_what_they_say_and_for_nothing_else(
    titles: tuple[str, ...], graphs: bool, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every step of four answers, prefill too; and what they say is what a CPU says."""
    folder = checkpoint("plain")
    plain, _ = asyncio.run(drive(stages(folder, "cpu"), asked(*titles)))
    with pretended(monkeypatch) as device:
        inside = watch(monkeypatch, device)
        found, steps = asyncio.run(drive(stages(folder, "cuda:0", graphs=graphs), asked(*titles), device))
    for one, other in zip(found, plain, strict=True):
        assert one[:2] == other[:2]
        assert np.abs(one[2] - other[2]).max() <= 1e-4
    assert not sum(inside, Counter())
    assert (len(inside) >= 10) == graphs
    assert most(steps, "talker") == 1, "its codes"
    assert most(steps, "thinker") <= 3, "what is heard, the first tokens, and those of who goes on writing"
    assert most(steps, "code2wav") <= 3, "the sound, of each length"


@pytest.mark.parametrize("dtype", ["bfloat16", "float32"])
def test_a_session_goes_on_there(dtype: str, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """What was computed for it is taken over, on the device; in the dtype of real checkpoints experts are grouped."""
    turns = PROMPTS["audio"]
    first = request("a", turns, 4, 4, session="s")
    second = request("b", [*turns, ("assistant", [5, 6]), ("user", ["And now?"])], 4, 4, session="s")
    with pretended(monkeypatch) as device:
        inside = watch(monkeypatch, device)
        line = stages(checkpoint("deep"), "cuda:0", dtype)
        for one in (first, second):
            (answer, *_), steps = asyncio.run(drive(line, [one], device))
            assert len(answer[1]) == 4
    assert not any("encoders.py" in where for _, _, waits in steps for _, where in waits), "it was heard before"
    assert inside
    assert not sum(inside, Counter())


def test_prompts_that_are_encoded_together_are_told_whole(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those that are taken in steps later: what was recalled of them must not be lost on the way."""
    titles, folder = ("audio", "image", "audio and image"), checkpoint("plain")
    first = [request(f"{i}", PROMPTS[title], 3, 3) for i, title in enumerate(titles)]
    more: list[Any] = [("assistant", [5, 6]), ("user", [TONE, "And now?"])]
    then = [request(f"{i}-then", [*PROMPTS[title], *more], 4, 4, session=f"{i}") for i, title in enumerate(titles)]
    line = stages(folder, "cpu", piece=32)
    plain = [asyncio.run(drive(line, asked))[0] for asked in (first, then)]
    with pretended(monkeypatch) as device:
        line = stages(folder, "cuda:0", piece=32)
        found = [asyncio.run(drive(line, asked, device))[0] for asked in (first, then)]
    for ours, theirs in zip(found, plain, strict=True):
        assert [one[:2] for one in ours] == [one[:2] for one in theirs]


def test_a_lost_voices_frames_are_taken_over_there_and_a_slot_is_cleared(
    checkpoint: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pretended(monkeypatch) as device:
        net: Any = stages(checkpoint("plain"), "cuda:0")[1].net  # type: ignore[attr-defined]
        device.taken()
        rows = net.follow(2, np.arange(3 * net.predictor.groups, dtype=np.int16).reshape(3, -1))
        net.forget(2)
        assert rows.shape == (2, net.width)
        assert not device.taken()


@pytest.mark.parametrize("fault", ["a question", "a number of the host", "an index of the host", "a mask"])
def test_a_wait_in_a_step_would_show(fault: str, checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative controls."""

    def planted(logits: torch.Tensor, seen: torch.Tensor, penalty: float) -> torch.Tensor:
        match fault:
            case "a question":
                assert logits.amax().item() < 1e9
            case "a number of the host":
                seen[put([0], seen.device), 0] = False
            case "an index of the host":
                seen = seen[torch.arange(len(seen))]
            case _:
                seen[~seen] = seen[~seen]
        return penalised(logits, seen, penalty)

    monkeypatch.setattr(talker_net, "penalised", planted)
    with pretended(monkeypatch) as device:
        inside = watch(monkeypatch, device)
        asyncio.run(drive(stages(checkpoint("plain"), "cuda:0"), asked("bare"), device))
    found = sum(inside, Counter())
    assert found
    assert {where.rpartition(" ")[2] for _, where in found} == {"planted"}


def test_a_tensor_of_the_host_in_a_step_would_show(checkpoint: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    """The negative control."""
    monkeypatch.setattr(talker_net, "penalised", lambda logits, *_: logits + torch.zeros(logits.shape[1]))
    with pretended(monkeypatch) as device, pytest.RaisesGroup(pytest.RaisesExc(RuntimeError, match="same device")):
        asyncio.run(drive(stages(checkpoint("plain"), "cuda:0"), asked("bare"), device))
