"""Doubts about what was heard: how sure the ears are, and the question back where they are not: "Did you say: spell
banana?".

A request that was only guessed at is not answered but asked back; with "yes" it is taken as said, with "no" the user is
asked to say it again, and with anything else it is forgotten. Knows no audio and no token.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.core import AudioPart, Message, TextPart
from engine.worker.models.nano.messages import text_of

AGAIN = "Okay. Please say it again."
_ASKED = re.compile(r"Did you say: (.+)\?")
_YES = re.compile(
    r"(yes|yeah|yep|right|correct|exactly|sure|okay)( (yes|yeah|nano|please|right|i did|thank you|that is right))*"
)
_NO = re.compile(r"(no|nope|wrong|not)( .*)?")


@dataclass(frozen=True, slots=True)
class UserTranscript:
    """The words that the ears understood, "" if none. Where they are not ``sure``, they guess."""

    words: str
    sure: bool = True


def question(transcript: UserTranscript) -> str:
    """Return the question to ask back; "" where none is needed."""
    return f"Did you say: {transcript.words}?" if transcript.words and not transcript.sure else ""


@dataclass(frozen=True, slots=True)
class Settled:
    """The conversation without its questions back: ``messages`` and the last turn's ``transcript`` are what was meant.

    ``reply`` is what to say at once, "" where the request is to be answered.
    """

    messages: tuple[Message, ...]
    transcript: str | None
    reply: str = ""


def settled(messages: tuple[Message, ...], transcript: UserTranscript | None) -> Settled:
    """``transcript`` is the user's last turn where they spoke it just now; else that is the last message.

    The very ``messages`` come back where there is nothing to settle.
    """
    words = None if transcript is None else transcript.words
    back = "" if transcript is None else question(transcript)
    if back or not any(map(_guess, messages)) or (words is None and messages[-1].role == "assistant"):
        return Settled(messages, words, back)
    open_turn = messages[-1:] if messages[-1].role == "user" else ()
    kept, asked = _without_questions(messages[: len(messages) - len(open_turn)])
    said = text_of(open_turn[0]) if words is None and open_turn else words or ""
    if asked and _means(_YES, said):
        return Settled((*kept, asked), None)
    return Settled((*kept, *open_turn), words, AGAIN if asked and _means(_NO, said) else "")


def _without_questions(messages: tuple[Message, ...]) -> tuple[tuple[Message, ...], Message | None]:
    """The messages with each question back resolved by its reply, and what the last one guessed, if it is open."""
    kept: list[Message] = []
    asked: Message | None = None
    for message in messages:
        if asked and message.role == "user":
            meant, asked = asked, None
            if not _means(_NO, text_of(message)):
                kept.append(meant if _means(_YES, text_of(message)) else message)
        elif guess := _guess(message):
            asked = _user(guess, kept.pop() if kept and kept[-1].role == "user" else None)
        elif message.role != "assistant" or text_of(message).strip() != AGAIN:
            kept.append(message)
    return tuple(kept), asked


def _guess(message: Message) -> str:
    """Return the request that the assistant asked back about with this message; "" if it did not."""
    found = _ASKED.fullmatch(text_of(message).strip()) if message.role == "assistant" else None
    return found[1] if found else ""


def _means(pattern: re.Pattern[str], said: str) -> bool:
    return pattern.fullmatch(" ".join(re.findall(r"[a-z']+", said.lower()))) is not None


def _user(words: str, transcript: Message | None) -> Message:
    """The user's turn as it was meant, with the pictures of the one that was heard."""
    pictures = [part for part in transcript.parts if not isinstance(part, TextPart | AudioPart)] if transcript else []
    return Message("user", (*pictures, TextPart(words)))
