"""llama.cpp in this process: loads a GGUF file and answers several chat completions concurrently.

The library's server loop runs in its own thread. Each answer has a thread that waits for the next token and passes it
to the event loop. Only local paths are used, and no network.
"""

from __future__ import annotations

import asyncio
import tempfile
import threading
from collections.abc import AsyncGenerator, Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec

from engine.errors import ConfigError, WeightsError
from engine.ipc.processor_time import OwnClock
from engine.worker.libraries.installed import installed
from engine.worker.llm.conversation_slots import EVERYBODY, ConversationSlots
from engine.worker.remote.refusals import ServerRefusal

MOST_UNREAD = 64
"""Maximum unread events of an answer; its thread then waits until the reader catches up."""
BATCH = 256
"""Prompt tokens per step. Between steps, abandoned answers are noticed, and the other answers get their next token."""
STUCK_S = 20.0
"""Seconds that a computation may go on after its client left. Batches of a large model on a slow machine take some.

Time for which this process waits for a processor does not count.
"""
CHECK_S = 1.0
"""Seconds between two checks of the computations whose clients have left."""
QUIET = -1
"""Log level that silences llama.cpp, because its log quotes conversations. Errors are also raised as exceptions."""
NO_GPU = (
    "llm.llamacpp: the installed xllamacpp finds no GPU. Install its build for your GPU (see its web page), or "
    "use the device cpu."
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaSettings:
    """Settings for loading a model."""

    weights: Path
    name: str
    context: int
    """Maximum tokens of a conversation."""
    slots: int
    """Maximum concurrent conversations."""
    threads: int
    gpu_layers: int
    """Number of layers on the GPU; -1 for as many as fit."""
    cache_type: str
    kept: int = 0
    """Number of conversations that are kept for their next request, in addition to those in progress."""
    template: str = ""
    """Jinja template, or a name that llama.cpp knows; empty for the file's own."""
    projector: Path | None = None


class Llama:
    """A loaded model. Call ``aclose`` at the end.

    Raises WeightsError if llama.cpp cannot load it, ConfigError if llama.cpp is not installed.
    """

    broken = False
    """Whether llama.cpp has failed while this process lives; never, because it runs in this process."""

    def __init__(self, settings: LlamaSettings) -> None:
        self._server: Any = _loaded(settings)
        self._threads = ThreadPoolExecutor(settings.slots, thread_name_prefix="llama")
        self._slots = ConversationSlots(settings.slots + settings.kept)
        self._answers = set[_Answer]()
        self._abandoned: dict[Future[None], float] = {}
        """Computations whose clients have left, and for how many seconds they have gone on since."""
        self._left = asyncio.Event()
        """Set while there may be such computations."""
        self._stuck = False

    async def events(self, body: Mapping[str, Any], name: str) -> AsyncGenerator[str]:
        """Yield the events of a chat completion as JSON. Closing or cancelling the generator aborts it.

        Requests with the same ``cache_salt`` share cached prompts. ``name`` is not used by llama.cpp. Raises
        ServerRefusal.
        """
        answer = _Answer(asyncio.get_running_loop())
        self._answers.add(answer)
        computing = self._threads.submit(self._ask, body, answer)
        try:
            while (event := await answer.get()) is not None:
                yield event
        finally:
            answer.leave()
            self._answers.discard(answer)
            if not (computing.done() or computing.cancel()):
                self._abandoned[computing] = 0.0
                self._left.set()

    def warm_up(self, body: Mapping[str, Any]) -> None:
        """Compute one token, so that the weights are in memory and the start of the prompt is cached for everybody."""
        with suppress(Exception):  # the first answer that fails reports it
            self._complete({**body, "max_tokens": 1}, EVERYBODY, lambda _: False)

    async def stuck(self) -> None:
        """Wait until a computation has gone on for STUCK_S after its client left."""
        clock = OwnClock()
        while not self._stuck:
            await self._left.wait()
            clock.lap_s()
            await asyncio.sleep(CHECK_S)
            lap_s = clock.lap_s()
            running = {one: seconds for one, seconds in self._abandoned.items() if not one.done()}
            self._abandoned = {one: seconds + lap_s for one, seconds in running.items()}
            self._stuck = max(self._abandoned.values(), default=0.0) >= STUCK_S
            if not self._abandoned:
                self._left.clear()

    @property
    def processing(self) -> int:
        """Number of answers in progress, as counted by llama.cpp."""
        return int(self.counts["requests_processing"])

    @property
    def counts(self) -> Mapping[str, float]:
        """llama.cpp's counters, by the names in its `/metrics`. Waits for its next step."""
        lines = [line for line in self._server.handle_metrics().splitlines() if line[:1] not in ("#", "")]
        return {name.removeprefix("llamacpp:"): float(count) for name, count in (line.split(" ") for line in lines)}

    async def aclose(self) -> None:
        """Abort all answers and unload the model."""
        for answer in self._answers:
            answer.leave()
        await asyncio.to_thread(self._close)

    def _close(self) -> None:
        if self._stuck:  # its thread would never end; the process is killed
            self._threads.shutdown(wait=False, cancel_futures=True)
            return
        self._threads.shutdown()
        self._server = None  # its destructor stops the library's threads

    def _ask(self, body: Mapping[str, Any], answer: _Answer) -> None:
        """Produce one answer in its own thread."""
        fields = dict(body)
        owner = fields.pop("cache_salt", "")
        try:
            if not answer.left:
                self._complete(fields, owner, answer.put, lambda: answer.left)
            answer.put(None)
        except Exception as error:  # noqa: BLE001 - llama.cpp throws several types for an invalid request
            answer.put(ServerRefusal(400, str(error)))

    def _complete(
        self,
        body: Mapping[str, Any],
        owner: str | None,
        put: Callable[[str], bool],
        left: Callable[[], bool] = lambda: False,
    ) -> None:
        with self._slots.hold(body, owner, left) as held:

            def progressed(event: str) -> bool:
                if '"prompt_progress"' in event:
                    held.computing()
                return put(event)

            # Prompt progress also lets the thread notice during a long prompt that its reader has left.
            placed = {"id_slot": held.slot.number, "cache_prompt": held.may_reuse, "return_progress": True}
            self._server.handle_chat_completions(msgspec.json.encode({**body, **placed}).decode(), progressed)


class _Answer:
    """Events passed in order from an answer's thread to the event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.left = False
        self._loop = loop
        self._events = asyncio.Queue[str | ServerRefusal | None]()
        self._room = threading.Semaphore(MOST_UNREAD)

    def put(self, event: str | ServerRefusal | None) -> bool:
        """Pass an event from the thread, waiting for room. Returns whether the reader has left, which ends the
        answer.
        """
        if not self.left:
            self._room.acquire()
        if not self.left:
            self._loop.call_soon_threadsafe(self._events.put_nowait, event)
        return self.left

    async def get(self) -> str | None:
        """Return the next event, or None at the end. Raises ServerRefusal."""
        event = await self._events.get()
        self._room.release()
        if isinstance(event, ServerRefusal):
            raise event
        return event

    def leave(self) -> None:
        """Stop reading."""
        self.left = True
        self._room.release()


def _loaded(settings: LlamaSettings) -> Any:
    xllamacpp = installed("llm.llamacpp", "xllamacpp", "xllamacpp", "local")
    if settings.gpu_layers and not any(_is_gpu(device) for device in xllamacpp.get_device_info()):
        raise ConfigError(NO_GPU)
    params = _params(xllamacpp, settings)
    # llama.cpp also opens an HTTP socket. It is put into a temporary folder, which is deleted once the model is loaded.
    with tempfile.TemporaryDirectory(prefix="parley-") as folder:
        params.hostnames = [str(Path(folder) / "llama.sock")]
        try:
            server = xllamacpp.Server(params)
        except RuntimeError:
            named = f"{settings.weights}{', or its projector' if settings.projector else ''}"
            raise WeightsError(
                f"{named}: llama.cpp cannot load it. The file is damaged, has a chat template that is not valid Jinja, "
                "needs more memory than available, or has an architecture that this version does not support. "
                "Download it again, set a template, or install a newer xllamacpp."
            ) from None
    server.handle_metrics()  # waits until its loop runs; stopping it earlier would hang
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
    params.n_parallel = settings.slots + settings.kept
    params.n_ctx = params.n_parallel * settings.context
    params.n_batch = params.n_ubatch = BATCH
    params.cpuparams.n_threads = params.cpuparams_batch.n_threads = settings.threads
    params.n_gpu_layers = settings.gpu_layers
    kind = getattr(xllamacpp.ggml_type, f"GGML_TYPE_{settings.cache_type.upper()}")
    params.cache_type_k = params.cache_type_v = kind
    params.cache_ram_mib = 0  # llama.cpp's own cache does not tell clients apart
    params.chat_template = settings.template
    if settings.projector is not None:
        params.mmproj.path = str(settings.projector)
        params.mmproj_use_gpu = settings.gpu_layers != 0
    return params
