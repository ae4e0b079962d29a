"""Decide which requests are retried after a step ran out of memory. The failed step changed no other state."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Any

from engine.errors import EngineError, StageFailed
from engine.worker.loop.prefix import Prefixes
from engine.worker.out_of_memory import begins_again
from engine.worker.stage_request import StageRequest

log = logging.getLogger(__name__)


def ran_out(
    stage: Any, reqs: Sequence[StageRequest], error: BaseException | None, beside: Sequence[Any] = ()
) -> list[EngineError]:
    """Return the error of each request in a step that ran out of memory.

    First the prefix caches of the stage, and of the device's stages ``beside``, are cleared. If that freed anything,
    every request is retried after its last output. Otherwise the newest request ends, and the others are retried.
    """
    name, again = stage.info.name, begins_again(stage)
    if _gave_way(stage, beside):
        return [again] * len(reqs)
    last = max(reqs, key=lambda req: req.listener.arrived_s).request.id
    log.error("request %s: the stage %s ran out of memory; the newest request ends", last, name, exc_info=error)
    end = StageFailed(
        f"The stage {name} ran out of memory, and this was the newest request. Try again later. The server's operator "
        "can lower max_batch or options.context."
    )
    return [end if req.request.id == last else again for req in reqs]


def _gave_way(stage: Any, beside: Sequence[Any]) -> bool:
    """Clear the prefix caches of all these stages, and return whether they contained anything."""
    found = [getattr(one, "prefixes", None) for one in (stage, *(one for one in beside if one is not stage))]
    kept = [prefixes for prefixes in found if isinstance(prefixes, Prefixes) and prefixes.size]
    if not kept:
        return False
    size = sum(prefixes.size for prefixes in kept)
    log.warning("the stage %s ran out of memory: cleared %d bytes of prefix caches", stage.info.name, size)
    for prefixes in kept:
        prefixes.clear()
    return True
