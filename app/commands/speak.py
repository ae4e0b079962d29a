"""`parley say` and `parley ask`: run one request and stream its audio. Stores only the requested files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from app.commands import terminal
from app.commands.answer import ReceivedAnswer, Show, answer, save_dump
from app.commands.sink import STDOUT, Nowhere, Sink, check_file, check_output, open_sink
from app.commands.source import Target, opened
from app.ids import new_id
from app.media.audio import MediaError, decode_audio
from app.media.images import image_of
from engine import (
    AudioPart,
    ImagePart,
    Message,
    Part,
    Request,
    RequestError,
    Sampling,
    TextPart,
)
from engine.aio.event_loop import run

MAX_AUDIO_S = 600.0
"""Maximum seconds of a recording for `ask`."""

SAY = "say.wav"
"""The file that `say` writes on a machine without a loudspeaker."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpeakRequest:
    """One user message for ``parley ask`` (text, a recording, images), and the settings for its answer."""

    text: str | None = None
    audio: Path | None = None
    images: tuple[Path, ...] = ()
    system: str | None = None
    voice: str | None = None
    sampling: Sampling
    max_text_tokens: int
    max_audio_s: float
    dump: bool = False

    def request(self) -> Request:
        """Return the request: images, then audio, then text. Reads the files. Raises RequestError."""
        parts: list[Part] = [_decoded(path, lambda data: ImagePart(image_of(data).decode())) for path in self.images]
        if self.audio is not None:
            parts.append(_decoded(self.audio, lambda data: AudioPart(decode_audio(data, MAX_AUDIO_S))))
        if self.text is not None:
            parts.append(TextPart(self.text))
        if not parts:
            raise RequestError("no question: use --text, --audio or --image")
        system = (Message("system", (TextPart(self.system),)),) if self.system is not None else ()
        return Request(
            id=new_id("ask"),
            session=new_id("sess"),
            messages=(*system, Message("user", tuple(parts))),
            voice=self.voice,
            sampling=self.sampling,
            dump=self.dump,
            max_text_tokens=self.max_text_tokens,
            max_audio_s=self.max_audio_s,
        )


def say(target: Target, text: str, output: str | None, voice: str | None, guidance: float = 1.0) -> None:
    """Speak a text unchanged, optionally with classifier-free guidance. Raises EngineError."""
    if not text.strip():
        raise RequestError("the text to speak is empty")
    check_output(output, otherwise=SAY)
    request = Request(
        id=new_id("say"),
        session=new_id("sess"),
        messages=(),
        say=text,
        voice=voice,
        sampling=Sampling(guidance=guidance),
        roles=("main",) if guidance == 1 else ("main", "negative"),
    )
    run(_say(target, request, text, output))


async def _say(target: Target, request: Request, text: str, output: str | None) -> None:
    result = ReceivedAnswer()
    async with opened(target, request.voice) as source:
        with terminal.SpeakingProgress(len(text)) as speaking:
            async with open_sink(output, otherwise=SAY) as sink:
                await answer(source, request, sink, Show(spoken=speaking.spoken), result)
        terminal.say(f"{speaking.seconds:.1f} s of speech to {sink.name}")
        terminal.say(terminal.ledger_line(result.ledger))


def ask(target: Target, question: SpeakRequest, output: str | None, dump: Path | None) -> None:
    """Answer one user message: text to standard output, audio to the sink. Raises EngineError."""
    request = question.request()
    check_output(output)
    if dump is not None:
        check_file(str(dump), (".npz",))
    run(_ask(target, request, output, dump))


async def _ask(target: Target, request: Request, output: str | None, dump: Path | None) -> None:
    text_to = terminal.say_piece if output != STDOUT else terminal.note_piece
    result = ReceivedAnswer()
    show = Show(text=text_to, transcript=lambda text: terminal.say(f"heard: {text}"))
    async with opened(target, request.voice) as source, open_sink(output) as sink:
        await answer(source, request, sink, show, result)
    text_to("\n")
    _report(result, sink)
    if dump is not None:
        await asyncio.to_thread(save_dump, dump, result)
        terminal.say(f"dump saved to {dump}")


def _report(result: ReceivedAnswer, sink: Sink) -> None:
    for call in result.calls:
        terminal.say(f"calls {call.name}({call.arguments})")
    if result.finish == "length":
        terminal.say("the answer was cut off at its maximum length")
    if isinstance(sink, Nowhere):
        terminal.say("audio was discarded: use -o answer.wav")
    elif result.waves:
        terminal.say(f"audio: {sink.name}")
    terminal.say(terminal.ledger_line(result.ledger))


def _decoded(path: Path, decode: Callable[[bytes], Part]) -> Part:
    """Decode a file as a part of the message. Raises RequestError, which names the file."""
    try:
        return decode(path.expanduser().read_bytes())
    except OSError as error:
        raise RequestError(f"cannot read {path}: {error.strerror}") from None
    except MediaError as error:
        raise RequestError(f"cannot read {path}: {error}") from None
