"""A pipeline: an ordered list of stages, the route of each request through them, and their merged description.

Each stage reads what the one before it feeds. The first stage that takes speech reads the user's speech. This module
knows stages only by their StageInfo, and uses no process and no clock.
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
"""The part of an answer that each kind of chunk belongs to."""

Terms = Sequence[tuple[str, str]]
"""The terms of the time to first audio, in pipeline order, each with the timeline mark that ends it."""

SPEECH, SAID = kinds(Speech), kinds(Text, VoiceText)
SHARED = frozenset(Facets.__struct_fields__) & frozenset(ModelInfo.__struct_fields__)
"""The fields that Facets and ModelInfo have in common."""


@dataclass(frozen=True, slots=True)
class Route:
    """The stages that a request passes, as indexes into the pipeline, in order."""

    stages: tuple[int, ...]
    ears: int = 0
    """The number of speech recogniser stages at the beginning.

    The stages after them start at the end of the user's turn.
    """
    say: str = ""
    """The text that is fed to the first stage; the thinker is skipped."""


@dataclass(frozen=True)
class Pipeline:
    """The stages of a deployment, checked.

    Raises ConfigError if a stage would get no input that it takes, or if no stage takes what another one feeds.
    """

    stages: Sequence[StageInfo]
    name: str = ""
    sources: Mapping[str, str] = field(default_factory=dict[str, str])
    """For each stage with a ``from:`` in the configuration, the name of the stage that it reads from."""
    sets_chunks: bool = False
    """Whether the configuration sets its own ``chunks``."""

    def __post_init__(self) -> None:
        names = [stage.name for stage in self.stages]
        for name in names:
            if names.count(name) > 1:
                raise ConfigError(f"stages: two stages are called {name!r}; give each a different name")
        self._check_duplex()
        for place in range(len(self.stages)):
            self._check_source(place)
        self._check_end()

    @cached_property
    def model(self) -> ModelInfo:
        """Return the description of the pipeline. Each fact comes from the first stage that provides it."""
        facets = [stage.facets for stage in self.stages]
        known = {name: _first(getattr(one, name) for one in facets) for name in SHARED}
        return ModelInfo(
            name=self.name or _first(one.model for one in facets) or "+".join(stage.name for stage in self.stages),
            abilities=self._abilities(),
            hears_only_for=self._hears_only_for(),
            reads_transcripts=any(stage.hears_only for stage in self.stages),
            notes=self._notes(),
            ledger=tuple(term for term, _ in self.terms),
            **{name: value for name, value in known.items() if value},
        )

    @cached_property
    def terms(self) -> Terms:
        """Return the terms of the time to first audio; see ``engine.control.timeline.Ledger``."""
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
        """Return the route of a request. Raises RequestError if the pipeline cannot serve it."""
        if request.say is not None:
            return self._saying(request.say, request.wants)
        if self._is_voice:
            raise RequestError(f"{self.model.name} is only a voice: it can speak a given text, but not answer.")
        self._check_wants(request.wants)
        if self.model.duplex is not None and not request.live:
            raise RequestError(f"{self.model.name} talks live only: open a Realtime or Live session and send audio.")
        if request.format is not None and "json" not in self.model.abilities:
            raise RequestError(f"{self.model.name} cannot answer in JSON. Request text, or use a language model.")
        places = [n for n in range(len(self.stages)) if self._brings(n, request.wants)]
        places = [n for n in places if request.hears or not self.stages[n].hears_only]
        if reason := _first(self.stages[n].unfit for n in places):
            raise RequestError(reason)
        if places and request.hears and not any(self.stages[n].takes & SPEECH for n in places):
            raise RequestError(f"{self.model.name} does not accept audio; send text.")
        if self.stages and not request.hears and (not places or self._mute_to(places[0])):
            raise RequestError(f"{self.model.name} does not accept typed messages; send audio.")
        ears = sum(self.stages[n].hears_only for n in places)
        return Route(tuple(places), ears if request.live else 0)

    def _saying(self, text: str, wants: frozenset[Want]) -> Route:
        """Return the route of a text that is spoken verbatim."""
        self._check_wants(frozenset({"audio"}))
        if "audio" not in wants:
            raise RequestError('say: a text is spoken as audio; add "audio" to `wants`.')
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
            raise RequestError(
                f"{self.model.name} gives no {' and no '.join(sorted(wants)) or 'answer: none was requested'}."
            )

    @property
    def _is_voice(self) -> bool:
        """Whether no stage writes the text that the first stage speaks, so that only a given text can be spoken."""
        return bool(self.stages) and bool(self.stages[0].takes & SAID) and not self.stages[0].answers

    def _offered(self, place: int) -> frozenset[Want]:
        """Return the parts of an answer that this stage and later ones produce."""
        return frozenset(WANTED[kind] for stage in self.stages[place:] for kind in stage.emits & WANTED.keys())

    def _brings(self, place: int, wants: frozenset[Want]) -> bool:
        offered = self._offered(place)
        return not offered or bool(offered & wants)

    def _mute_to(self, place: int) -> bool:
        """Whether a stage waits for input that no stage provides when the user types."""
        stage = self.stages[place]
        return bool(stage.takes) and not stage.answers

    def _notes(self) -> tuple[str, ...]:
        notes = list(dict.fromkeys(stage.facets.leaving for stage in self._fit if stage.facets.leaving))
        if name := self._hears_only_for():
            notes.append(f"Its speech recognition only understands the requests of {name}. Type anything else.")
        for stage in self.stages:
            if self.sets_chunks and stage.facets.own_chunks:
                rule = f"{stage.name} cuts its audio by its own rule."
                notes.append(f"The configuration's chunks have no effect: {rule}")
        return tuple(notes)

    def _hears_only_for(self) -> str:
        """Return the model whose requests the speech recogniser is limited to, if another model answers."""
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
            found |= {"json"} if stage.facets.writes_json else set()
            found |= {"speech"} if stage.emits & kinds(Audio) else set()
            found |= {"text"} if stage.answers else set()
        return frozenset(found)

    def _check_source(self, place: int) -> None:
        """Check that a stage gets its input from the stage before it, or from the user if there is none."""
        stage, before = self.stages[place], self.stages[:place]
        if source := self.sources.get(stage.name):
            self._check_named(source, place)
        feeding = [other for other in before if other.feeds & stage.takes]
        if not before:
            if not stage.answers and stage.takes and not stage.takes & (SPEECH | SAID):
                raise ConfigError(self._unfed(place))
        elif not feeding and stage.takes & SPEECH:
            raise ConfigError(
                f"stages[{place}]: {stage.name} and {before[0].name} would both hear the user; a pipeline has no "
                "branches, so remove one of them"
            )
        elif not feeding:
            raise ConfigError(self._unfed(place))
        elif feeding[-1] is not before[-1]:
            raise ConfigError(
                f"stages[{place}]: {stage.name} reads from {feeding[-1].name}, but {before[-1].name} is between "
                "them; a pipeline has no branches, so remove or move it"
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
                f"stages[{place}].from: {stage.name} reads from {before[-1]}, the stage before it; a pipeline has "
                f"no branches, so remove the stages between {source} and {stage.name}"
            )

    def _unfed(self, place: int) -> str:
        """Explain why a stage gets no input, and which stages would provide it."""
        stage = self.stages[place]
        later = [other.name for other in self.stages[place + 1 :] if other.feeds & stage.takes]
        fed = [f"{other.name} provides {_listed(other.feeds)}" for other in self.stages[:place] if other.feeds]
        what = f"stages[{place}]: {stage.name} takes {_listed(stage.takes)}, but no stage before it provides that"
        if later:
            return f"{what}; {later[0]} does, so move it before {stage.name}"
        return f"{what} ({'; '.join(fed)})" if fed else what

    def _check_end(self) -> None:
        if self.stages and not (last := self.stages[-1]).emits:
            what = f"provides {_listed(last.feeds)}, which no later stage takes" if last.feeds else "has no output"
            raise ConfigError(f"stages: the last one, {last.name}, {what}")

    def _check_duplex(self) -> None:
        for stage in self.stages if len(self.stages) > 1 else ():
            if stage.facets.duplex is not None:
                raise ConfigError(
                    f"stages: {stage.name} listens and speaks itself, so it must be the only stage; remove the others"
                )


def _first(values: Iterable[T | None]) -> T | None:
    """Return the first value that is not empty."""
    return next((value for value in values if value), None)


def _listed(kinds: frozenset[Kind]) -> str:
    return " or ".join(sorted(kinds)) or "nothing"
