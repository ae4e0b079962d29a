"""The part of a model's text that is read aloud, while the text still arrives.

Marks of markdown, targets of links, code in fences, tags and emoji are left out; of a bare address its host is said,
and of an HTML entity its character. All else stays as it is, character by character, with its place in the answer.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator
from contextlib import suppress

from engine.chunk import VoiceText
from engine.worker.llm.emphasis import Emphasis, is_blank
from engine.worker.llm.formula import FRACTIONS, Formula
from engine.worker.llm.reader import Scan, Sign, TextReader, text_of
from engine.worker.llm.signs import BREAKS, TAGS, entity, is_picture

MOST_HELD = 20
"""Characters that may wait for what follows them, outside of a fence."""

SLOW = 4
"""Characters that a model writes in the time of one beyond ASCII, which has several tokens."""

_BEGINNINGS = frozenset(" \t-=*_+|:>#~`•")
"""Characters that a line's marks are made of."""
_MARKS = re.compile(r"[ \t]*(?:>[ \t]*)*(?P<item>[-*+•][ \t]+)?(?:#{1,6}[ \t]+)?(?P<cell>\|)?[ \t]*")
_FENCE = re.compile(r"[ \t>]*(?:[-*+][ \t]+)?(?P<fence>`{3,}|~{3,})[ \t]*")
_TAG = re.compile(r"/?[\w:-]+/?(?:>| +(?:/?>|(?:[a-zA-Z][\w-]* +)*[a-zA-Z][\w-]*=|[a-zA-Z][\w-]*>))")
"""A tag from its name to its end, or to its first attribute with a value."""
_SCHEMES = ("https://", "http://", "www.")
_URL_ENDS = frozenset(' \t\n<>"`]|')
_URL_TRAILS = frozenset(".,;:!?)}'*_~")
_TOKEN_SIGNS = frozenset("|｜")
"""The signs within the brackets of a special token: ``<|im_end|>``."""
_MOST_TOKEN = 32
_ESCAPED = frozenset("!\"#$%&'*+,-./:;<=>?@^_`{|}~\\")


class SpokenText:
    """Feed the pieces of an answer, flush once at the end. How the text is cut makes no difference to the whole.

    Where what is said stands in the answer: ``answer[start:][:len(text)] == text``, but for the marks between a
    table's cells, which become commas, tags that end a line, which become blanks, and entities and the marks of a
    formula, which become the signs that they stand for.
    """

    def __init__(self) -> None:
        self.silent = 0
        """Number of characters since the last speakable one. An emoji counts as four, ten characters of code as one."""
        self.lettered = False
        """Whether the text has had a letter or a digit."""
        self._at = 0
        self._fence = False
        self._said: list[Sign] = []
        self._read = TextReader()
        self._before = ""
        self._first = True
        """Whether nothing but marks stood in this line."""
        self._item = self._row = self._autolink = False
        self._code = 0
        """The number of backticks that end the code which is being read."""
        self._formula = Formula()
        self._last = ""
        """The character that was said last."""
        self._emphasis = Emphasis()
        self._brackets: list[bool] = []
        """Whether each open bracket is a mark."""
        self._rules: dict[str, Callable[[Sign], Scan]] = {
            **dict.fromkeys("*_~", self._emphasized),
            **dict.fromkeys("hHwW", self._address),
            "`": self._backticks,
            "[": self._bracket,
            "]": self._bracket_end,
            "!": self._image,
            "<": self._tag,
            ">": self._tag_end,
            "\\": self._escape,
            "$": self._dollar,
            "|": self._cell,
            "&": self._entity,
        }
        self._machine = self._text()
        next(self._machine)

    def feed(self, piece: str) -> list[VoiceText]:
        """Return what can be said now."""
        for char in piece:
            self._machine.send(Sign(char, self._at, self._before))
            self._at = self._at + 1
            self._before = char
            self._count_silence()
        return self._emitted()

    def flush(self) -> list[VoiceText]:
        """Return the rest, at the answer's end."""
        with suppress(StopIteration):
            self._machine.send(Sign("", self._at, self._before))
        return self._emitted()

    def _count_silence(self) -> None:
        if self._said and self._said[-1].char.isalnum():
            self.silent = 0
            self.lettered = True
        elif not self._fence or self._at % 10 == 0:
            self.silent += 1 if self._before.isascii() else SLOW

    def _emitted(self) -> list[VoiceText]:
        """Return what was said since, in pieces without a gap."""
        said = self._said
        self._said = []
        pieces: list[tuple[list[str], int]] = []
        for sign in said:
            if pieces and pieces[-1][1] + len(pieces[-1][0]) == sign.at:
                pieces[-1][0].append(sign.char)
            else:
                pieces.append(([sign.char], sign.at))
        return [VoiceText("".join(chars), start) for chars, start in pieces]

    def _say(self, *signs: Sign) -> None:
        self._said += signs
        if signs:
            self._last = signs[-1].char

    # ---- lines ----

    def _text(self) -> Scan:
        while True:
            yield from self._line_marks()
            while True:
                sign = yield from self._read.next()
                if sign.char in ("", "\n"):
                    break
                yield from self._sign(sign)
                self._first = False
            if not sign.char:
                return
            self._say(sign)
            self._new_line()

    def _new_line(self) -> None:
        """Marks that are still open were none, or are forgotten."""
        self._first = True
        self._code = 0
        self._item = self._row = self._autolink = False
        if self._formula.end == "$":
            self._formula.close()
        self._emphasis = Emphasis()
        self._brackets = []

    def _line_marks(self) -> Scan:
        """Leave out what a line begins with as a heading, an item, a quotation, a table's row, or a rule."""
        held: list[Sign] = []
        while (sign := (yield from self._read.next())).char in _BEGINNINGS and sign.char:
            held.append(sign)
            if len(held) > MOST_HELD:  # a rule, or a table's: there is no more to learn from its beginning
                self._row = self._row or held[0].char == "|"
                del held[0]
        text = text_of(held)
        self._read.unread(sign)
        if fence := _FENCE.fullmatch(text):
            self._fence = True
            yield from self._fenced(fence["fence"])
            self._fence = False
        elif sign.char not in ("", "\n"):  # else the line has nothing but marks
            marks = _MARKS.match(text)
            assert marks is not None  # it matches nothing, too
            self._item = bool(marks["item"])
            self._row = self._row or bool(marks["cell"])
            self._read.unread(*held[marks.end() :])

    def _fenced(self, fence: str) -> Scan:
        """Leave out lines up to one that ends the fence; code that ends in its first line is no fence."""
        line: list[Sign] = []
        first = True
        while True:
            sign = yield from self._read.next()
            if sign.char not in ("", "\n"):
                line.append(sign)
                continue
            text = text_of(line).strip(" \t>")
            if first and fence[0] == "`" and "`" in text:
                self._say(*(one for one in line if one.char != "`"))
                break
            if not sign.char or (not first and len(text) >= len(fence) and set(text) == {fence[0]}):
                break
            line, first = [], False
        self._read.unread(sign)

    # ---- within a line ----

    def _sign(self, sign: Sign) -> Scan:
        if self._code and sign.char != "`":
            self._say(sign)
        elif self._formula and (mark := (yield from self._formula_mark(sign))) is not None:
            self._say(*(Sign(char, sign.at) for char in mark))
        elif rule := self._rules.get(sign.char):
            yield from rule(sign)
        elif not is_picture(sign.char, sign.before):
            self._say(sign)

    def _formula_mark(self, sign: Sign) -> Generator[None, Sign, str | None]:
        return self._formula.mark(sign.char, (yield from self._read.peek()))

    def _entity(self, sign: Sign) -> Scan:
        """Say the character that an HTML entity stands for."""
        held = [(yield from self._read.next())]
        while (held[-1].char.isalnum() or held[-1].char == "#") and len(held) < MOST_HELD:
            held.append((yield from self._read.next()))
        if character := entity(text_of(held)):
            self._say(Sign(character, sign.at))
        else:
            self._say(sign)
            self._read.unread(*held)

    def _backticks(self, sign: Sign) -> Scan:
        run = yield from self._read.run(sign, MOST_HELD)
        if not self._code:
            self._code = len(run)
        elif self._code == len(run):
            self._code = 0
        else:
            self._say(*run)

    def _emphasized(self, sign: Sign) -> Scan:
        """Leave out stars and lines below that emphasize; those of formulas, names and products stay."""
        run = yield from self._read.run(sign, MOST_HELD)
        before, after = sign.before, (yield from self._read.peek())
        if self._formula:
            self._say(*([Sign(" ", one.at) for one in run] if sign.char == "_" else run))
        elif sign.char == "~":
            self._say(*(run if len(run) != 2 or (is_blank(before) and is_blank(after)) else []))
        elif not self._emphasis.takes(sign.char, len(run), before, after):
            self._say(*run)

    def _bracket(self, sign: Sign) -> Scan:
        """Brackets around words are marks; those behind a word, as of a list in code, are not."""
        if (yield from self._note()):
            return
        mark = not self._formula and not sign.before.isalnum() and sign.before not in (")", "]")
        self._brackets.append(mark)
        if not mark:
            self._say(sign)

    def _note(self) -> Generator[None, Sign, bool]:
        """Leave out a footnote's number, and the box of an item that is to be done."""
        first, held = (yield from self._read.peek()), list[Sign]()
        boxed = self._item and self._first and first in (" ", "x", "X")
        most = MOST_HELD if first == "^" else 2 if boxed else 0
        while len(held) < most:
            held.append((yield from self._read.next()))
            if held[-1].char == "]":
                return True
            if held[-1].char in ("", "\n"):
                break
        self._read.unread(*held)
        return False

    def _bracket_end(self, sign: Sign) -> Scan:
        if not self._brackets or not self._brackets.pop():
            self._say(sign)
        elif (yield from self._read.peek()) == "(":
            yield from self._target()

    def _target(self) -> Scan:
        """Leave out where a link leads to; a remark in parentheses stays."""
        held, depth, titled = list[Sign](), 0, False
        while True:
            sign = yield from self._read.next()
            if sign.char in ("", "\n"):
                self._read.unread(*(held if len(held) <= MOST_HELD else []), sign)
                return
            if len(held) <= MOST_HELD:
                held.append(sign)
            depth += {"(": 1, ")": -1}.get(sign.char, 0)
            if depth == 0:
                return
            if sign.char == " " and not titled and len(held) <= MOST_HELD:
                titled = (yield from self._read.peek()) in ('"', "'", "(")
                if not titled:
                    self._say(held[0])
                    self._read.unread(*held[1:])
                    return

    def _image(self, sign: Sign) -> Scan:
        if (yield from self._read.peek()) != "[":
            self._say(sign)

    def _address(self, sign: Sign) -> Scan:
        """Say an address's host."""
        held = [sign]
        if sign.before.isalnum() or not (yield from self._read.word(held, _SCHEMES)):
            self._say(sign)
            self._read.unread(*held[1:])
            return
        if held[-1].char == "/":
            host = [(yield from self._read.next())]
            if not (yield from self._read.word(host, ("www.",))):
                self._read.unread(*host)
        yield from self._host()

    def _host(self) -> Scan:
        while (sign := (yield from self._read.next())).char.isalnum() or sign.char in ("-", "."):
            self._say(sign)
        trail: list[Sign] = []
        if sign.char in ("/", "?", "#", ":"):
            while sign.char and sign.char not in _URL_ENDS:
                trail = [*trail[-MOST_HELD + 1 :], sign] if sign.char in _URL_TRAILS else []
                sign = yield from self._read.next()
        self._read.unread(*trail, sign)

    def _tag(self, sign: Sign) -> Scan:
        """Leave out a tag, or say a blank for one that ends a line; what only begins like a tag, as of a comparison, is
        said."""
        held = [(yield from self._read.next())]
        if held[-1].char in _TOKEN_SIGNS:
            yield from self._special_token(sign, held)
            return
        while (held[-1].char.isalnum() or held[-1].char in ("/", "-", "_", ":")) and len(held) < MOST_HELD:
            if text_of(held) in ("http:", "https:"):
                break
            held.append((yield from self._read.next()))
        name, end = text_of(held[:-1]).strip("/").lower(), held[-1].char
        if name in ("http", "https") and end == ":":
            self._autolink = True
            self._read.unread(*held)
            return
        while name in TAGS and (held[-1].char.isalnum() or held[-1].char in (" ", "-", "/")) and len(held) < MOST_HELD:
            held.append((yield from self._read.next()))
        if name in TAGS and _TAG.fullmatch(text_of(held)):
            self._say(*([Sign(" ", sign.at)] if name in BREAKS else []))
            self._read.unread(held[-1])
            while (last := (yield from self._read.next())).char not in ("", "\n", ">"):
                pass
            self._read.unread(*([last] if last.char != ">" else []))
        else:
            self._say(sign)
            self._read.unread(*held)

    def _special_token(self, sign: Sign, held: list[Sign]) -> Scan:
        """Drop a chat-template token such as ``<|im_end|>``, which models sometimes write as text.

        ``sign`` is the ``<``, and ``held`` the characters read after it. If they form no token, they are read again
        as text.
        """
        while (char := held[-1].char) and char != ">" and not char.isspace() and len(held) < _MOST_TOKEN:
            held.append((yield from self._read.next()))
        if len(held) < 3 or held[-1].char != ">" or held[-2].char not in _TOKEN_SIGNS:
            self._say(sign)
            self._read.unread(*held)

    def _tag_end(self, sign: Sign) -> Scan:
        if self._autolink:
            self._autolink = False
        else:
            self._say(sign)
        yield from ()

    def _escape(self, sign: Sign) -> Scan:
        """``\\*`` is a star, ``\\(`` begins a formula, ``\\times`` in it is the word."""
        after = yield from self._read.next()
        if after.char and after.char in "([":
            self._formula.begin({"(": ")", "[": "]"}[after.char])
        elif after.char and after.char in ")]":
            self._formula.close()
        elif self._formula and after.char.isalpha():
            word = [after]
            while (yield from self._read.peek()).isalpha() and len(word) < MOST_HELD:
                word.append((yield from self._read.next()))
            mixed = text_of(word) in FRACTIONS and (yield from self._is_mixed_number())
            spoken = self._formula.command(text_of(word), mixed)
            self._say(*(word if spoken == text_of(word) else [Sign(char, sign.at) for char in spoken]))
        elif after.char and after.char in _ESCAPED:
            self._say(*([] if self._formula else [after]))
        else:
            self._say(*([] if self._formula or after.char in ("", "\n") else [sign]))
            self._read.unread(after)

    def _is_mixed_number(self) -> Generator[None, Sign, bool]:
        """Whether the fraction that begins here follows a whole number, and its numerator is a number, too."""
        held = [(yield from self._read.next()), (yield from self._read.next())]
        self._read.unread(*held)
        return self._last.isdecimal() and held[1].char.isdecimal()

    def _dollar(self, sign: Sign) -> Scan:
        after = yield from self._read.peek()
        if after == "$":
            yield from self._read.next()
            self._formula.begin("" if self._formula else "$$")
        elif self._formula.end == "$":
            self._formula.close()
        elif not self._formula and not sign.before.isalnum() and (yield from self._begins_formula()):
            self._formula.begin("$")
        else:
            self._say(sign)

    def _begins_formula(self) -> Generator[None, Sign, bool]:
        """Whether a formula follows the dollar sign; an amount of money has neither letters nor commands."""
        held = [(yield from self._read.next())]
        while held[-1].char.isdecimal() and len(held) < MOST_HELD:
            held.append((yield from self._read.next()))
        self._read.unread(*held)
        last = held[-1].char
        return last == "\\" or (len(held) == 1 and (last.isalpha() or last in ("{", "(", "|")))

    def _cell(self, sign: Sign) -> Scan:
        """Make a pause between a table's cells; none at its end."""
        if not self._row:
            self._say(sign)
            return
        held: list[Sign] = []
        while (last := (yield from self._read.next())).char in (" ", "\t") and len(held) < MOST_HELD:
            held.append(last)
        self._read.unread(*held, last)
        if last.char not in ("", "\n"):
            self._say(Sign(",", sign.at))
