"""A pipeline: stages in their order, which of them a request passes, and what all of them can do together.

Each stage reads what the one before it feeds; the first one that takes speech reads what the user says. Pure: no
process, no clock; a stage is known by its StageInfo alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar

from engine.chunk import Audio, Kind, Speech, Text, ToolCall, VoiceText, kinds
from engine.core import Ability, Facets, ModelInfo, Request, StageInfo, Want
from engine.errors import ConfigError, RequestError

T = TypeVar("T")

WANTED: Mapping[Kind, Want] = {"transcript": "transcript", "text": "text", "audio": "audio"}
"""The part of an answer that each kind of chunk brings."""

Terms = Sequence[tuple[str, str]]
"""The terms of the first-audio ledger, and the mark that ends each, in the order of the pipeline."""

SPEECH, SAID = kinds(Speech), kinds(Text, VoiceText)
SHARED = frozenset(Facets.__struct_fields__) & frozenset(ModelInfo.__struct_fields__)
"""The facts of a stage that are its pipeline's facts, too."""


@dataclass(frozen=True, slots=True)
class Route:
    """The stages that a request passes, as places in the pipeline, in order."""

    stages: tuple[int, ...]
    ears: int = 0
    """The number of stages, at the beginning, that only hear: what comes behind them waits for the end of the user's
    turn."""
    say: str = ""
    """The text that is fed to the first stage, in place of what a thinker would write."""


@dataclass(frozen=True)
class Pipeline:
    """``sources`` are the stages that a configuration names for others to read from (``from:``), by name;
    ``sets_chunks`` says that it has ``chunks`` of its own.

    Raises ConfigError, in one sentence, where a stage would get nothing that it takes, or give what nothing takes.
    """

    stages: Sequence[StageInfo]
    name: str = ""
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    sets_chunks: bool = False

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"stages: two of them are called {name!r}; each needs a name of its own")
        for place in range(len(self.stages)):
            self._check_source(place)
        self._check_end()

    @cached_property
    def model(self) -> ModelInfo:
        """Describe the pipeline: each fact comes from the first stage that knows it."""
        facets = [stage.facets for stage in self.stages]
        known = {name: _first(getattr(one, name) for one in facets) for name in SHARED}
        return ModelInfo(
            name=self.name or _first(one.model for one in facets) or "+".join(stage.name for stage in self.stages),
            abilities=self._abilities(),
            hears_only_for=self._hears_only_for(),
            notes=self._notes(),
            ledger=tuple(term for term, _ in self.terms),
            **{name: value for name, value in known.items() if value},
        )

    @cached_property
    def terms(self) -> Terms:
        """Return the terms of the first-audio ledger; see ``engine.control.timeline.Ledger``."""
        terms = [("queue", "open")]
        for place, stage in enumerate(self.stages):
            if stage.hears_only:
                terms.append((stage.name, stage.mark("done")))
            elif stage.answers and place + 1 < len(self.stages):
                terms.append((f"{stage.name}_prefill", stage.mark("out")))
                terms.append((f"{stage.name}_tokens", self.stages[place + 1].mark("step")))
            else:
                terms.append((stage.name, stage.mark("out")))
        return [*terms, ("packet", "audio")]

    def route(self, request: Request) -> Route:
        """The way of a request. Raises RequestError where there is none."""
        if request.say is not None:
            return self._saying(request.say, request.wants)
        if self._is_voice:
            raise RequestError(f"{self.model.name} is a voice: it speaks a given text, and answers nothing.")
        self._check_wants(request.wants)
        places = [n for n in range(len(self.stages)) if self._brings(n, request.wants)]
        places = [n for n in places if request.hears or not self.stages[n].hears_only]
        if reason := _first(self.stages[n].unfit for n in places):
            raise RequestError(reason)
        if places and request.hears and not any(self.stages[n].takes & SPEECH for n in places):
            raise RequestError(f"{self.model.name} does not hear; type to it.")
        if self.stages and not request.hears and (not places or self._mute_to(places[0])):
            raise RequestError(f"{self.model.name} cannot be typed to; speak to it.")
        ears = sum(self.stages[n].hears_only for n in places)
        return Route(tuple(places), ears if request.live else 0)

    def _saying(self, text: str, wants: frozenset[Want]) -> Route:
        """The way of a text that is spoken as it stands."""
        self._check_wants(frozenset({"audio"}))
        if "audio" not in wants:
            raise RequestError("A text that is to be spoken becomes sound: ask for audio.")
        for place in range(len(self.stages)):
            stage = self.stages[place]
            if stage.says:
                return Route(tuple(range(place, len(self.stages))))
            if stage.takes & SAID and self._brings(place, frozenset({"audio"})):
                return Route(tuple(range(place, len(self.stages))), say=text)
        raise RequestError(f"{self.model.name} cannot speak a given text.")

    def _check_wants(self, wants: frozenset[Want]) -> None:
        offered = self._offered(0)
        if offered and "audio" in wants and "audio" not in offered:
            raise RequestError(f"{self.model.name} has no voice; ask for text.")
        if offered and not offered & wants:
            raise RequestError(f"{self.model.name} gives no {' and no '.join(sorted(wants)) or 'answer to nothing'}.")

    @property
    def _is_voice(self) -> bool:
        """Whether nobody writes the text that the first stage takes: a given text is all that can be said."""
        return bool(self.stages) and bool(self.stages[0].takes & SAID) and not self.stages[0].answers

    def _offered(self, place: int) -> frozenset[Want]:
        """Return the parts of an answer that a stage, or one behind it, brings."""
        return frozenset(WANTED[kind] for stage in self.stages[place:] for kind in stage.emits & WANTED.keys())

    def _brings(self, place: int, wants: frozenset[Want]) -> bool:
        offered = self._offered(place)
        return not offered or bool(offered & wants)

    def _mute_to(self, place: int) -> bool:
        """Whether a stage waits for what nobody feeds it when the user types."""
        stage = self.stages[place]
        return bool(stage.takes) and not stage.answers

    def _notes(self) -> tuple[str, ...]:
        notes = list(dict.fromkeys(stage.facets.leaving for stage in self._fit if stage.facets.leaving))
        if name := self._hears_only_for():
            notes.append(f"Its speech recognition knows only the few requests of {name}: type anything else.")
        for stage in self.stages:
            if self.sets_chunks and stage.facets.own_chunks:
                rule = f"{stage.name} cuts its sound by a rule of its own."
                notes.append(f"The configuration's chunks have no effect: {rule}")
        return tuple(notes)

    def _hears_only_for(self) -> str:
        """Return the model whose requests are all that the ears understand, if another one answers."""
        facets = [stage.facets for stage in self._fit]
        models = {one.model for one in facets}
        return next((one.hears_for for one in facets if one.hears_for and one.hears_for not in models), "")

    @property
    def _fit(self) -> list[StageInfo]:
        return [stage for stage in self.stages if not stage.unfit]

    def _abilities(self) -> frozenset[Ability]:
        found: set[Ability] = set()
        for stage in self._fit:
            found |= stage.facets.sees
            found |= {"audio"} if stage.takes & SPEECH else set()
            found |= {"tools"} if stage.emits & kinds(ToolCall) else set()
            found |= {"speech"} if stage.emits & kinds(Audio) else set()
            found |= {"text"} if stage.answers else set()
        return frozenset(found)

    def _check_source(self, place: int) -> None:
        """A stage reads from the one before it; the first, from the user."""
        stage, before = self.stages[place], self.stages[:place]
        if source := self.sources.get(stage.name):
            self._check_named(source, place)
        feeding = [other for other in before if other.feeds & stage.takes]
        if not before:
            if not stage.answers and stage.takes and not stage.takes & (SPEECH | SAID):
                raise ConfigError(self._unfed(place))
        elif not feeding and stage.takes & SPEECH:
            raise ConfigError(
                f"stages[{place}]: {stage.name} and {before[0].name} would both hear the user; a pipeline has one "
                "line, so leave one of them out"
            )
        elif not feeding:
            raise ConfigError(self._unfed(place))
        elif feeding[-1] is not before[-1]:
            raise ConfigError(
                f"stages[{place}]: {stage.name} reads from {feeding[-1].name}, and {before[-1].name} stands between "
                "them; a pipeline has one line, so leave it out or move it"
            )

    def _check_named(self, source: str, place: int) -> None:
        stage, before = self.stages[place], [other.name for other in self.stages[:place]]
        if source not in before:
            raise ConfigError(
                f"stages[{place}].from: no stage before {stage.name} is called {source!r}; "
                f"there are {', '.join(before) or 'none'}"
            )
        if source != before[-1]:
            raise ConfigError(
                f"stages[{place}].from: {stage.name} reads from {before[-1]}, which stands before it; a pipeline has "
                f"one line, so leave out what is between {source} and {stage.name}"
            )

    def _unfed(self, place: int) -> str:
        """Explain why a stage gets nothing, and which stages would feed it."""
        stage = self.stages[place]
        later = [other.name for other in self.stages[place + 1 :] if other.feeds & stage.takes]
        fed = [f"{other.name} feeds {_listed(other.feeds)}" for other in self.stages[:place] if other.feeds]
        what = f"stages[{place}]: {stage.name} takes {_listed(stage.takes)}, and no stage before it feeds that"
        if later:
            return f"{what}; {later[0]} does, so put it first"
        return f"{what} ({'; '.join(fed)})" if fed else what

    def _check_end(self) -> None:
        if self.stages and not (last := self.stages[-1]).emits:
            what = f"feeds {_listed(last.feeds)}, which no stage behind it takes" if last.feeds else "gives nothing"
            raise ConfigError(f"stages: the last of them, {last.name}, {what}")


def _first(values: Iterable[T | None]) -> T | None:
    """Return the first value that is not empty."""
    return next((value for value in values if value), None)


def _listed(kinds: frozenset[Kind]) -> str:
    return " or ".join(sorted(kinds)) or "nothing"
