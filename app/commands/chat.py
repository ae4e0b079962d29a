"""`parley chat`: a typed conversation in the terminal; answers stream as text, and as audio to a file or device.

Ctrl-C ends the current answer; Ctrl-D or /quit ends the conversation.
"""

from __future__ import annotations

import asyncio
import signal
import sys
import threading
from collections.abc import Coroutine
from contextlib import suppress
from typing import Any

from app.commands import terminal
from app.commands.answer import ReceivedAnswer, Show, answer
from app.commands.sink import Sink, check_output, open_sink
from app.commands.source import Answerer, Target, check_voice, opened
from app.ids import new_id
from engine import EngineError, Message, Request, Sampling, TextPart, TokenIds
from engine.aio.event_loop import run

HELP = "/voice NAME changes the voice, /new starts over, /quit exits; Ctrl-C stops an answer."


def chat(target: Target, output: str | None, voice: str | None, sampling: Sampling) -> None:
    """Converse until the end of the input. Raises EngineError if the model or server is not available."""
    check_output(output)
    run(_chat(target, output, voice, sampling))


async def _chat(target: Target, output: str | None, voice: str | None, sampling: Sampling) -> None:
    async with opened(target, voice) as source, open_sink(output) as sink:
        terminal.say(f"You are talking to {source.model.name}; audio goes to {sink.name}. {HELP}")
        conversation = ChatHistory(source, sink, voice, sampling)
        typing = Typing()
        terminal.prompt()
        while (line := await typing.line()) is not None:
            if not conversation.command(line):
                await conversation.turn(line)
            terminal.prompt()


class ChatHistory:
    """The turns so far, and the settings of the next answer."""

    def __init__(self, source: Answerer, sink: Sink, voice: str | None, sampling: Sampling) -> None:
        self.messages: list[Message] = []
        self._source = source
        self._sink = sink
        self._voice = voice
        self._sampling = sampling
        self._session = new_id("sess")

    def command(self, line: str) -> bool:
        """Run a line if it is a command. Returns False if the line is a turn of the conversation."""
        word, _, rest = line.partition(" ")
        match word:
            case "":
                pass
            case "/voice":
                self._choose(rest.strip())
            case "/new":
                self.messages.clear()
            case _ if word.startswith("/"):
                terminal.say(HELP)
            case _:
                return False
        return True

    def _choose(self, voice: str) -> None:
        try:
            check_voice(self._source.model, voice)
        except EngineError as error:
            terminal.fail(str(error))
        else:
            self._voice = voice

    async def turn(self, text: str) -> None:
        """Answer one turn. An error is printed, and the conversation continues."""
        self.messages.append(Message("user", (TextPart(text),)))
        said = ReceivedAnswer()
        try:
            await _interruptible(self._answer(said))
        except EngineError as error:
            terminal.say_piece("\n" if said.text else "")
            terminal.fail(str(error))
        self._remember(said)

    async def _answer(self, said: ReceivedAnswer) -> None:
        request = Request(
            id=new_id("chat"),
            session=self._session,
            messages=tuple(self.messages),
            voice=self._voice,
            sampling=self._sampling,
        )
        await answer(self._source, request, self._sink, Show(text=terminal.say_piece), said)
        terminal.say_piece("\n")
        terminal.whisper(terminal.ledger_line(said.ledger))

    def _remember(self, said: ReceivedAnswer) -> None:
        """Store the answer with its token ids. If the answer has no text, remove the user's turn."""
        if said.text:
            tokenizer = self._source.model.tokenizer
            ids = TokenIds(tokenizer, tuple(said.text_ids)) if tokenizer and said.text_ids else None
            self.messages.append(Message("assistant", (TextPart(said.text),), ids))
        else:
            self.messages.pop()


async def _interruptible(answering: Coroutine[Any, Any, None]) -> None:
    """Run an answer that Ctrl-C cancels without ending the program."""
    loop = asyncio.get_running_loop()
    task = asyncio.create_task(answering, name="answer")
    with suppress(NotImplementedError, RuntimeError, ValueError):  # signals are available only in the main thread
        loop.add_signal_handler(signal.SIGINT, task.cancel)
    try:
        await asyncio.wait([task])
    finally:
        task.cancel()
        with suppress(NotImplementedError, RuntimeError, ValueError):
            loop.remove_signal_handler(signal.SIGINT)
    if task.cancelled():
        terminal.say_piece(" …\n")
    else:
        task.result()


class Typing:
    """Reads the user's lines in a thread, which can't be interrupted and so is never awaited."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str | None] = asyncio.Queue(maxsize=1)  # one line: a pipe that is ahead waits
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="typing", daemon=True).start()

    async def line(self) -> str | None:
        """Return the next line; None at the end."""
        return await self._lines.get()

    def _read(self) -> None:
        line = None
        while line != "":
            line = sys.stdin.readline()
            typed = line.strip() if line and line.strip() != "/quit" else None
            with suppress(RuntimeError):  # the loop is closed
                asyncio.run_coroutine_threadsafe(self._lines.put(typed), self._loop).result()
            if typed is None:
                return
