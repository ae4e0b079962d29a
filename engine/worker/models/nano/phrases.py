"""Words and whole sentences that are one token each: what nano's answers are mostly made of.

The thinker reads and writes characters; what it says over and over, and the words by which it matches a question with
what it sees, stand as one token instead. A user's word keeps its letters, so that it can be spelled, and has its token
behind them. Knows no network and no conversation.
"""

# fmt: off

from __future__ import annotations

from functools import cache

CONCEPTS = (
    "black", "white", "gray", "red", "orange", "yellow", "green", "blue", "purple", "pink", "brown",
    "circle", "square", "triangle", "star", "cross", "rectangle", "heart", "thing",
    "left", "right", "top", "bottom", "middle", "dark", "dim", "light", "many", "still", "moving", "up", "down",
    "reads", "unclear", "timer", "weather", "volume", "on", "off",
    "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday",
    "January", "February", "March", "April", "May", "June", "July", "August", "September", "October", "November",
    "December",
)
"""Words that have their token also where the user says them."""
SAYINGS = (
    "Hello! What can I do for you?", "Hello! I am nano. How can I help?", "Goodbye! It was nice to talk to you.",
    "You are welcome!", "I am fine, thank you. How can I help?", "My name is nano.",
    "I can see colors, shapes and numbers, repeat and spell words, add and subtract, count, remember your name, and "
    "tell the time.",
    "I cannot talk freely, and I know nothing about the world. For that, load a bigger model.",
    "I am nano, a tiny language model that runs on this computer.",
    "I was trained on made up dialogues by the makers of Parley.", "I run on this computer.",
    "Yes, I am here. What can I do for you?", "I only speak English.",
    "Why did the robot cross the road? It was programmed by a chicken.",
    "What do you call a bear without teeth? A gummy bear.", "Why was six afraid of seven? Because seven eight nine.",
    "Heads.", "Tails.", "You rolled a ", "Thank you, that is kind.", "I am sorry. I am only a small model.",
    "No problem.", "Okay.", "I am glad to hear that.", "I am sorry to hear that.",
    "I have no picture. Turn on your camera.", "Sorry, I didn't catch that.",
    "Sorry, I didn't catch that. Can you say it again?",
    "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z.",
    "I don't know. Load a bigger model to ask me that.",
    "I don't know that. I am only a small model. Load a bigger model to ask me that.",
    "I don't know your name yet.", "I don't know your favorite color yet.", "I don't know where you live yet.",
    "I don't know your age yet.", "I don't know your dog yet.",
    "I can't tell.", "I can't make anything out.",
    "I can't tell. I only know colors, shapes, letters and numbers.", "I can't tell which color.",
    "I can't tell which shape.", "I can't tell from one picture.", "I see no letters or numbers.",
    "Nothing has changed.", "The text is gone.", "I cannot do that. I was given no tool for it.",
    "Stop me and start Parley with a config of Qwen3 Omni. That one needs a graphics card.",
    "Done.", "That did not work.", "For how long?", "In which city?", "To which level?", "Which color?",
    "Which numbers?", "Which word?", "What shall I say?", "Up to which number?", "After which day?",
    "A week has 7 days.", "A year has 12 months.",
)
PIECES = (
    "I see ", "I see no ", "I see only ", "I now see ", " on the ", " at the ", " in the ", "The ", " the ", " is ",
    " are ", "It is ", "It is now ", "They are ", "It is a ", "Yes, ", "Yes, the ", "Yes, I see ", "No, ", "No, the ",
    "No, I see no ", ", so ", "It reads ", "It now reads ", "spread out", "gone", "still there", " and ", " more",
    "The background is ", "The background is now ", " is now ", " are now ", "Yes, it is ", "No, it is ",
    "Your name is ", "Nice to meet you, ", "Okay. ", "Your favorite color is ", "You live in ", "You are ",
    "Your dog is ", "The weather: ", "Hello, ", "After ", "Before ", " comes ", " plus ", " minus ", " times ",
    "minus ", "time=", "state=", "color=", "room=", "place=", "day=", "level=", "step=", "get_time", "get_date",
)
"""Parts of sentences, with the spaces around them, and of tools' calls."""
PHRASES = CONCEPTS + SAYINGS + PIECES

# fmt: on

_ENDINGS = ("s", "es")
_OTHERWISE = {"grey": "gray", "lights": "light", "lamp": "light", "lamps": "light"}


def concept(word: str) -> int | None:
    """The number in PHRASES of a user's word, also of its plural; None if it has none."""
    plain = _OTHERWISE.get(word.lower(), word.lower())
    numbers = _numbers()
    found = (plain, *(plain.removesuffix(ending) for ending in _ENDINGS if plain.endswith(ending)))
    return next((numbers[one] for one in found if one in numbers), None)


def cut(text: str) -> list[str | int]:
    """A text as what it is written with: single characters, and numbers of PHRASES, the longest that fit."""
    parts: list[str | int] = []
    at = 0
    while at < len(text):
        number = next((n for n in _by_first().get(text[at], ()) if _fits(text, at, PHRASES[n])), None)
        parts.append(text[at] if number is None else number)
        at += 1 if number is None else len(PHRASES[number])
    return parts


@cache
def _numbers() -> dict[str, int]:
    return {word.lower(): number for number, word in enumerate(CONCEPTS)}


@cache
def _by_first() -> dict[str, list[int]]:
    """First character -> the phrases that begin with it, the longest first."""
    found: dict[str, list[int]] = {}
    for number in sorted(range(len(PHRASES)), key=lambda n: -len(PHRASES[n])):
        found.setdefault(PHRASES[number][0], []).append(number)
    return found


def _fits(text: str, at: int, phrase: str) -> bool:
    """Whether the phrase stands there as words of its own; a plural's ending may follow."""
    end = at + len(phrase)
    if not text.startswith(phrase, at) or (phrase[0].isalpha() and at and text[at - 1].isalnum()):
        return False
    rest = text[end : end + 3]
    after = next((rest[len(ending) :] for ending in ("es", "s") if rest.startswith(ending)), rest)
    return not phrase[-1].isalpha() or not rest[:1].isalnum() or not after[:1].isalnum()
