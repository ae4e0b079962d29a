"""Confirmation questions after uncertain speech recognition ("Did you say: spell banana?").

nano asks back instead of answering an uncertain transcript. "Yes" confirms it, "no" makes nano ask to repeat it, and
any other reply discards it.
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
    """The recognized words."""

    words: str
    """The words, or "" if nothing was understood."""
    sure: bool = True
    """Whether the recognizer is confident."""


def question(transcript: UserTranscript) -> str:
    """Return the confirmation question for an uncertain transcript, or ""."""
    return f"Did you say: {transcript.words}?" if transcript.words and not transcript.sure else ""


@dataclass(frozen=True, slots=True)
class Settled:
    """A conversation with its confirmation questions resolved."""

    messages: tuple[Message, ...]
    transcript: str | None
    """The meaning of the last spoken turn."""
    reply: str = ""
    """A reply to give immediately, or "" if the request should be answered."""


def settled(messages: tuple[Message, ...], transcript: UserTranscript | None) -> Settled:
    """Resolve the confirmation questions of a conversation.

    ``transcript`` is the user's last turn if it was spoken just now; otherwise the last message is. Returns
    ``messages`` itself if there is nothing to resolve.
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
    """Return the messages with confirmed guesses in place of the questions, and the guess of an unanswered last
    question.
    """
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
    """Return the guessed request if the message is a confirmation question, or ""."""
    found = _ASKED.fullmatch(text_of(message).strip()) if message.role == "assistant" else None
    return found[1] if found else ""


def _means(pattern: re.Pattern[str], said: str) -> bool:
    return pattern.fullmatch(" ".join(re.findall(r"[a-z']+", said.lower()))) is not None


def _user(words: str, transcript: Message | None) -> Message:
    """Return the user's turn with the confirmed words, and the pictures of the original turn."""
    pictures = [part for part in transcript.parts if not isinstance(part, TextPart | AudioPart)] if transcript else []
    return Message("user", (*pictures, TextPart(words)))
