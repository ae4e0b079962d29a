"""What the server knows about a replica and its worker's process: plain data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import msgspec

from engine.core import Remembered


class ReplicaInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One replica of one stage, as the server currently sees it."""

    stage: str
    replica: str
    """The name of its worker, which its successors inherit."""
    incarnation: int
    """The number of workers that have had that name."""
    state: Literal["up", "draining"]
    leased: int
    """The number of requests that hold a lease on it."""
    slots: int
    """The maximum number of slots in use at once."""
    queue: int
    """Requests that had to wait for a step at the last heartbeat."""
    step_ms: float
    """The duration of a step, in milliseconds."""
    age_s: float
    """Seconds since it joined."""
    remembered: Remembered | None = None
    """Counts of the stage's prefix cache at the last heartbeat; None for a stage without one."""
    unavailable: str = ""
    """Why requests that need the stage fail for now, as a sentence: the server that it asks is down."""


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """Processor time of a worker's main thread since it started."""

    computed_s: float
    """Seconds on a processor."""
    waited_s: float
    """Seconds in which it was ready to run and had no processor."""
    on_disk: bool = False
    """Whether it is waiting for a disk right now, or for a page of its memory that is on one."""
