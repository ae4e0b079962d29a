"""Faults of the device that a stage computes on, told by their names: this knows no torch.

A device that runs out of memory in a step has harmed no state but the step's: remembered prompts give theirs up first,
and where there are none, the request that came last ends, so that the others have room.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from engine.errors import EngineError, OutOfMemory, StageFailed
from engine.worker.loop.prefix import Prefixes
from engine.worker.stage_request import StageRequest

log = logging.getLogger(__name__)

OUT_OF_MEMORY = frozenset({"OutOfMemoryError", "MemoryError"})
"""Names of the errors by which torch and Python say so."""
SAID = ("out of memory", "STATUS_ALLOC_FAILED", "not enough memory")
"""Words by which a RuntimeError says so: CUDA's, ROCm's and Apple's own, cuBLAS's and cuDNN's, and torch's on a CPU."""


def out_of_memory(error: BaseException | None) -> bool:
    said = isinstance(error, RuntimeError) and any(words in str(error) for words in SAID)
    return said or type(error).__name__ in OUT_OF_MEMORY


def begins_again(stage: Any) -> OutOfMemory:
    """Return what becomes of a request for which there was too little memory, as long as others can give some up."""
    return OutOfMemory(f"The stage {stage.info.name} ran out of memory while it computed this answer.")


def ran_out(
    stage: Any, reqs: Sequence[StageRequest], error: BaseException | None, beside: Sequence[Any] = ()
) -> list[EngineError]:
    """Return what becomes of each request of a step for which there was too little memory: it begins again behind what
    it has given, or, where no remembered prompt could give way and it came last of all, it ends. ``beside`` are the
    device's stages, this one among them or not: what they remember gives way as well."""
    name, again = stage.info.name, begins_again(stage)
    if _gave_way(stage, beside):
        return [again] * len(reqs)
    last = max(reqs, key=lambda req: req.listener.arrived_s).request.id
    log.error("request %s: the stage %s ran out of memory, and this one came last", last, name, exc_info=error)
    end = StageFailed(
        f"The stage {name} ran out of memory, and this request was the last to come. Try again later; who runs the "
        "server may lower max_batch or options.context."
    )
    return [end if req.request.id == last else again for req in reqs]


def _gave_way(stage: Any, beside: Sequence[Any]) -> bool:
    """Whether prompts that the stages remembered gave their memory up."""
    found = [getattr(one, "prefixes", None) for one in (stage, *(one for one in beside if one is not stage))]
    kept = [prefixes for prefixes in found if isinstance(prefixes, Prefixes) and prefixes.size]
    if not kept:
        return False
    size = sum(prefixes.size for prefixes in kept)
    log.warning("the stage %s ran out of memory: %d bytes of remembered prompts gave way", stage.info.name, size)
    for prefixes in kept:
        prefixes.clear()
    return True
