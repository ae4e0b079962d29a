"""What `test_ray.py` looks at: a cluster of two local nodes, an engine on it, and what happens to them.

In a process of its own, for Ray leaves threads and processes behind until it is shut down. Prints one JSON object.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import statistics
import sys
import time
from typing import Any

from engine import Engine, EngineSpec, Message, Request, TextPart, load_config
from engine.chunk import Audio, Text
from engine.deployment.config import ClusterSpec

NODE: dict[str, Any] = {"num_cpus": 1, "object_store_memory": 80_000_000}


def asked(text: str, id: str, **fields: Any) -> Request:
    return Request(id=id, session=id, messages=(Message("user", (TextPart(text),)),), **fields)


async def answer(engine: Engine, text: str, id: str, stop: asyncio.Event | None = None) -> dict[str, Any]:
    """An answer's text, and a digest of its samples; ``stop`` is set once it sounds."""
    words: list[str] = []
    sound = hashlib.sha256()
    samples = 0
    async with engine.open(asked(text, id)) as chunks:
        async for chunk in chunks:
            if isinstance(chunk, Text):
                words.append(chunk.text)
            elif isinstance(chunk, Audio):
                sound.update(chunk.wave.tobytes())
                samples += len(chunk.wave)
                if stop is not None:
                    stop.set()
    assert chunks.ledger is not None
    return {"text": "".join(words), "sound": sound.hexdigest(), "samples": samples, "ttfa_ms": chunks.ledger.ttfa_ms}


async def times(engine: Engine, name: str) -> float:
    took = [(await answer(engine, "say: how long", f"{name}{i}"))["ttfa_ms"] for i in range(30)]
    return statistics.median(took[5:])


def shape(engine: Engine) -> dict[str, int]:
    return {name: stage["replicas"] for name, stage in engine.stats().items()}


async def wait_for(engine: Engine, talkers: int) -> float:
    """Wait until there are so many talkers; how long that took in seconds."""
    began_s = time.monotonic()
    async with asyncio.timeout(90):
        while engine.stats()["talker"]["replicas"] != talkers:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
    return time.monotonic() - began_s


async def story(cluster: Any, other: Any, spec: EngineSpec) -> dict[str, Any]:
    found: dict[str, Any] = {}
    one = EngineSpec(model=spec.model, workers=spec.workers, chunks=spec.chunks, options=spec.options)
    async with Engine(one) as engine:
        found["single"] = await answer(engine, "long 40", "same")
        found["single_ttfa_ms"] = await times(engine, "single")
    async with Engine(spec) as engine:
        found["shape"] = shape(engine)
        found["cluster"] = await answer(engine, "long 40", "same")
        found["cluster_ttfa_ms"] = await times(engine, "cluster")
        found.update(await losing(engine, cluster, other))
    return found


async def losing(engine: Engine, cluster: Any, other: Any) -> dict[str, Any]:
    """Take a node away while four are spoken to, so that some of them are on it; then bring one back."""
    sounding = [asyncio.Event() for _ in range(4)]
    speaking = [asyncio.create_task(answer(engine, "long 400", f"lost{i}", one)) for i, one in enumerate(sounding)]
    await asyncio.gather(*(one.wait() for one in sounding))
    began_s = time.monotonic()
    await asyncio.to_thread(cluster.remove_node, other, allow_graceful=False)
    missed_s = await wait_for(engine, 1)
    ends = await asyncio.gather(*speaking, return_exceptions=True)
    whole = " ".join(f"word{i}" for i in range(400))
    told = [repr(one) if isinstance(one, BaseException) else "whole" if one["text"] == whole else "cut" for one in ends]
    sounds = sorted({one["samples"] for one in ends if not isinstance(one, BaseException)})
    after = await answer(engine, "say: still here", "after")
    cluster.add_node(**NODE, resources={"voice": 1})  # Ray wants the main thread, so the server stalls: so be it
    back_s = await wait_for(engine, 2)
    return {
        "ends": told, "samples": sounds, "after": after["text"], "missed_s": missed_s, "back_s": back_s,
        "lost_s": time.monotonic() - began_s,
    }  # fmt: skip


def main(config: str) -> None:
    import ray
    from ray.cluster_utils import Cluster

    head = {**NODE, "include_dashboard": False, "resources": {"front": 1, "voice": 1}}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        other = cluster.add_node(**NODE, resources={"voice": 1})
        spec = load_config(config)
        whole = ClusterSpec(address=cluster.address)
        spec = EngineSpec(
            model="script", workers=spec.workers, launcher=spec.launcher, cluster=whole, empty_s=30.0,
            options={"frames_per_word": 2},
        )  # fmt: skip
        print(json.dumps(asyncio.run(story(cluster, other, spec))))
    finally:
        ray.shutdown()
        cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1])
