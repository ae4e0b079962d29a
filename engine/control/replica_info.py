"""Plain data about a replica and its worker's process."""

from __future__ import annotations

from typing import Literal

import msgspec

from engine.core import DuplexCounts, Remembered


class ReplicaInfo(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The current state of one replica of one stage."""

    stage: str
    replica: str
    """The name of its worker. A restarted worker keeps the name."""
    incarnation: int
    """The number of workers that have had that name, including this one."""
    state: Literal["up", "draining"]
    leased: int
    """The number of requests that hold slots of it."""
    slots: int
    """The total number of slots."""
    queue: int
    """Requests that were ready to step at the last heartbeat and had to wait."""
    step_ms: float
    """The duration of a step, in milliseconds."""
    age_s: float
    """Seconds since its worker joined."""
    remembered: Remembered | None = None
    """Counts of the stage's prefix cache at the last heartbeat; None for a stage without one."""
    duplex: DuplexCounts | None = None
    """Counts of a duplex stage's frames at the last heartbeat; None for other stages."""
    unavailable: str = ""
    """A sentence that says why the stage cannot work now: the remote server that it calls is down. Otherwise empty."""
