"""Model and voice names: the requested names, and the loaded model and voice that serve the request.

Clients written for OpenAI request OpenAI's names, often without a way to change them. The loaded model and voice serve
all names, as in the Realtime protocol, and response headers report the replacement. Of several models, a name that is
none of theirs selects the default one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from urllib.parse import quote

from pydantic import BaseModel

from app.http_errors import HttpRefusal
from app.service import Service
from app.telemetry import log
from engine import ModelInfo

MODEL, VOICE, MAPPED = "parley-model", "parley-voice", "parley-mapped"
"""Response headers: the model and voice that served the request, and which of them replaced another name."""

HEADERS = (MODEL, VOICE, MAPPED)


class VoiceId(BaseModel):
    """OpenAI's way to name a custom voice."""

    id: str


AnyVoice = str | VoiceId | None


@dataclass(frozen=True, slots=True)
class Names:
    """The model and voice that serve a request.

    ``voice`` is None if nothing is spoken, or if the model has no named voices.
    """

    model: str
    voice: str | None = None
    mapped: tuple[str, ...] = ()
    """Contains "model" or "voice" for each name that was replaced."""

    @property
    def headers(self) -> dict[str, str]:
        """Return the response headers."""
        voice = {VOICE: quote(self.voice)} if self.voice is not None else {}
        mapped = {MAPPED: ", ".join(self.mapped)} if self.mapped else {}
        return {MODEL: quote(self.model), **voice, **mapped}


def names_of_model(service: Service, asked: str) -> Names:
    """Return the names for an answer without speech. Raises Closed, and HttpRefusal for an unknown name in strict
    mode.
    """
    model = service.context(model=asked).engine.model
    if asked == model.name:
        return Names(model.name)
    if service.settings.strict_names:
        raise not_loaded(service.hosts.names, asked)
    log("http.model_mapped", asked=asked[:200], loaded=model.name)
    return Names(model.name, mapped=("model",))


def names_of_voice(service: Service, asked: str, any_voice: AnyVoice, param: str) -> Names:
    """Return the model and voice that serve a request, and the requested names that they replace.

    ``param`` is the request's field that names the voice. Raises Closed while the server is not ready, and HttpRefusal
    if the model does not speak, or for an unknown name in strict mode.
    """
    names, context = names_of_model(service, asked), service.context(model=asked)
    voice = any_voice.id if isinstance(any_voice, VoiceId) else any_voice
    if "speech" not in context.engine.model.abilities:
        raise HttpRefusal(400, "unsupported_value", f"{context.engine.model.name} has no speech output.", param)
    loaded = context.voice(voice or "") or None
    if voice is None or loaded == voice:
        return Names(names.model, loaded, names.mapped)
    if service.settings.strict_names:
        raise HttpRefusal(400, "invalid_value", _no_voice(context.engine.model, voice), param)
    log("http.voice_mapped", asked=voice, loaded=loaded)
    return Names(names.model, loaded, (*names.mapped, "voice"))


def not_loaded(names: Sequence[str], asked: str) -> HttpRefusal:
    """Return the error for a model that is not loaded; ``names`` are those that are."""
    message = f"The model {asked[:100]!r} is not loaded: use {' or '.join(map(repr, names))}."
    return HttpRefusal(404, "model_not_found", message, "model")


def _no_voice(model: ModelInfo, asked: str) -> str:
    ids = ", ".join(model.voice_ids)
    choice = f"choose one of {ids}" if ids else "the model has no named voices, leave it out"
    return f"Unknown voice {asked[:100]!r}: {choice}."
