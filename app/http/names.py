"""The names of models and voices: those that a client asked for, and those that serve it.

Clients are written for the hosted service and ask for its names, often without a way to give others. The loaded ones
serve them all, as over the Realtime protocol; the answer's head says so. Knows no API's shapes.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import quote

from pydantic import BaseModel

from app.http_errors import HttpRefusal
from app.service import Service
from app.telemetry import log
from engine import ModelInfo

MODEL, VOICE, MAPPED = "parley-model", "parley-voice", "parley-mapped"
"""Response headers: the model and the voice that served, and which of the two were asked for by another name."""

HEADERS = (MODEL, VOICE, MAPPED)


class VoiceId(BaseModel):
    """The API's name for a voice of one's own."""

    id: str


AnyVoice = str | VoiceId | None


@dataclass(frozen=True, slots=True)
class Names:
    """The model and the voice that serve a request. ``voice`` is None where nothing is spoken, or the model has only
    its own."""

    model: str
    voice: str | None = None
    mapped: tuple[str, ...] = ()
    """The words "model" and "voice", each where it was asked for by a name that is not loaded."""

    @property
    def headers(self) -> dict[str, str]:
        """Return what the answer's head says of them."""
        voice = {VOICE: quote(self.voice)} if self.voice is not None else {}
        mapped = {MAPPED: ", ".join(self.mapped)} if self.mapped else {}
        return {MODEL: quote(self.model), **voice, **mapped}


def names_of_model(service: Service, asked: str) -> Names:
    """The names of an answer that is not spoken. Raises HttpRefusal where names are strict, and Closed."""
    model = service.context().engine.model
    if asked == model.name:
        return Names(model.name)
    if service.settings.strict_names:
        raise not_loaded(model, asked)
    log("http.model_mapped", asked=asked[:200], loaded=model.name)
    return Names(model.name, mapped=("model",))


def names_of_voice(service: Service, asked: str, any_voice: AnyVoice, param: str) -> Names:
    """The names of a spoken answer; ``param`` is the field that names the voice.

    Raises HttpRefusal where the model does not speak, or names are strict, and Closed.
    """
    names, context = names_of_model(service, asked), service.context()
    voice = any_voice.id if isinstance(any_voice, VoiceId) else any_voice
    if "speech" not in context.engine.model.abilities:
        raise HttpRefusal(400, "unsupported_value", f"{context.engine.model.name} does not speak.", param)
    loaded = context.voice(voice or "") or None
    if voice is None or loaded == voice:
        return Names(names.model, loaded, names.mapped)
    if service.settings.strict_names:
        raise HttpRefusal(400, "invalid_value", _no_voice(context.engine.model, voice), param)
    log("http.voice_mapped", asked=voice, loaded=loaded)
    return Names(names.model, loaded, (*names.mapped, "voice"))


def not_loaded(model: ModelInfo, asked: str) -> HttpRefusal:
    """Return the refusal that says there is no such model here."""
    message = f"The model {asked[:100]!r} is not loaded: this server has {model.name!r}."
    return HttpRefusal(404, "model_not_found", message, "model")


def _no_voice(model: ModelInfo, asked: str) -> str:
    ids = ", ".join(model.voice_ids)
    choice = f"choose one of {ids}" if ids else "the model has only its own, leave it out"
    return f"There is no voice {asked[:100]!r}: {choice}."
