"""llama.cpp in this process: a model's file that answers chat completions, several at a time.

Its server's loop is a thread of the library. Each answer has a thread here that waits for the next token and hands it
to the event loop. Knows no stage and no request of the engine, and reaches no network: only local paths get here.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncGenerator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import ConfigError, WeightsError
from engine.worker.libraries.installed import installed
from engine.worker.remote.refusals import ServerRefusal

MOST_UNREAD = 64
"""Events of one answer that may wait for their reader: behind them its thread waits, and nothing is lost."""
BATCH = 256
"""Tokens of prompts that are computed at once. Behind them, answers that were left are noticed, and the others get
their next token."""
QUIET = -1
"""The level at which llama.cpp's own log is silent, for it quotes what is said; its errors come to us as well."""
NO_GPU = (
    "llm.llamacpp: the xllamacpp that is installed sees no GPU. Install its build for yours (its page names them), or "
    "let the worker compute on the cpu."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaSettings:
    """The settings with which a model is loaded."""

    weights: Path
    name: str
    context: int
    """Tokens of one conversation."""
    slots: int
    """Conversations that are answered at once."""
    threads: int
    gpu_layers: int
    """The number of layers that a GPU has; all that fit with -1."""
    cache_type: str
    cache_mb: int
    template: str = ""
    """Jinja, or a name that llama.cpp knows; empty for the file's own."""
    projector: Path | None = None


class Llama:
    """A model that is loaded. Needs ``aclose`` at the end.

    Raises WeightsError where llama.cpp cannot load it, ConfigError where there is no llama.cpp.
    """

    broken = False
    """Whether llama.cpp is broken and this process is not: never, since both break together."""

    def __init__(self, settings: LlamaSettings) -> None:
        self._server: Any = _loaded(settings)
        self._threads = ThreadPoolExecutor(settings.slots, thread_name_prefix="llama")
        self._answers = set[_Answer]()

    async def events(self, body: Mapping[str, Any], name: str) -> AsyncGenerator[str]:
        """The events of a chat completion, as JSON; llama.cpp has no use for a ``name``. To close this generator aborts
        it, and so does cancelling. Raises Refusal."""
        answer = _Answer(asyncio.get_running_loop())
        # The progress of a prompt comes as well: so a thread learns that its reader has left.
        asked = msgspec.json.encode({**body, "return_progress": True}).decode()
        self._answers.add(answer)
        self._threads.submit(self._ask, asked, answer)
        try:
            while (event := await answer.get()) is not None:
                yield event
        finally:
            answer.leave()
            self._answers.discard(answer)

    def warm_up(self, body: Mapping[str, Any]) -> None:
        """Compute one token of an answer, so that the weights are in memory and the prompt's beginning in the cache."""
        asked = msgspec.json.encode({**body, "max_tokens": 1}).decode()
        with suppress(Exception):  # the first answer that fails reports it
            self._server.handle_chat_completions(asked, lambda _: False)

    @property
    def processing(self) -> int:
        """The number of answers that llama.cpp computes, by its own count."""
        return int(self.counts["requests_processing"])

    @property
    def counts(self) -> Mapping[str, float]:
        """Return llama.cpp's counts of its work, by the names of its `/metrics`. The call waits for its next step."""
        lines = [line for line in self._server.handle_metrics().splitlines() if line[:1] not in ("#", "")]
        return {name.removeprefix("llamacpp:"): float(count) for name, count in (line.split(" ") for line in lines)}

    async def aclose(self) -> None:
        """Abort what is under way, and let go of the model."""
        for answer in self._answers:
            answer.leave()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        self._threads.shutdown()
        self._server = None  # its destructor ends the library's threads

    def _ask(self, asked: str, answer: _Answer) -> None:
        """Make one answer, from its first event to its end, in a thread of its own."""
        try:
            if not answer.left:
                self._server.handle_chat_completions(asked, answer.put)
            answer.put(None)
        except Exception as error:  # noqa: BLE001 - llama.cpp throws what it says of a request, the template's words too
            answer.put(ServerRefusal(400, str(error)))


class _Answer:
    """The events that one answer's thread hands to the event loop, in order."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.left = False
        self._loop = loop
        self._events = asyncio.Queue[str | ServerRefusal | None]()
        self._room = threading.Semaphore(MOST_UNREAD)

    def put(self, event: str | ServerRefusal | None) -> bool:
        """Hand over an event from the thread, and wait while there is no room. Returns whether the reader has left:
        True ends the answer."""
        if not self.left:
            self._room.acquire()
        if not self.left:
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
        return self.left

    async def get(self) -> str | None:
        """The next event; None at the end. Raises Refusal."""
        event = await self._events.get()
        self._room.release()
        if isinstance(event, ServerRefusal):
            raise event
        return event

    def leave(self) -> None:
        """Read no more."""
        self.left = True
        self._room.release()


def _loaded(settings: LlamaSettings) -> Any:
    xllamacpp = installed("llm.llamacpp", "xllamacpp", "xllamacpp", "local")
    if settings.gpu_layers and not any(_is_gpu(device) for device in xllamacpp.get_device_info()):
        raise ConfigError(NO_GPU)
    params = _params(xllamacpp, settings)
    # llama.cpp listens for HTTP as well. Nobody finds the door: it lies in a folder that is gone once it is open.
    with tempfile.TemporaryDirectory(prefix="parley-") as folder:
        params.hostnames = [str(Path(folder) / "llama.sock")]
        try:
            server = xllamacpp.Server(params)
        except RuntimeError:
            named = f"{settings.weights}{', or its projector' if settings.projector else ''}"
            raise WeightsError(
                f"{named}: llama.cpp cannot load it. It is damaged, has a chat template that is not valid Jinja, "
                "needs more memory than there is, or is of an architecture that this version does not know: fetch it "
                "again, give a template, or take a newer xllamacpp."
            ) from None
    server.handle_metrics()  # its loop runs once it answers; one that is asked to end before that never does
    return server


def _is_gpu(device: Mapping[str, Any]) -> bool:
    return "GPU" in getattr(device["type"], "name", "")


def _params(xllamacpp: Any, settings: LlamaSettings) -> Any:
    params = xllamacpp.CommonParams()
    params.model.path = str(settings.weights)
    params.offline = True
    params.ui = False
    params.verbosity = QUIET
    params.endpoint_metrics = True
    params.n_parallel = settings.slots
    params.n_ctx = settings.slots * settings.context
    params.n_batch = params.n_ubatch = BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    params.n_gpu_layers = settings.gpu_layers
    kind = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{settings.cache_type.upper()}")
    params.cache_type_k = params.cache_type_v = kind
    params.cache_ram_mib = settings.cache_mb
    params.chat_template = settings.template
    if settings.projector is not None:
        params.mmproj.path = str(settings.projector)
        params.mmproj_use_gpu = settings.gpu_layers != 0
    return params
