"""A session's initial settings, and the session as its client sees it."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import replace

from app.realtime.conversation import check_settings, functions_only
from app.realtime.input import voiceprint
from app.realtime.input.speaker_encoder import INSTALL, MODEL
from app.realtime.protocol import SessionOptions, Transcription, listed, name_of, server_events, session_options
from app.realtime.session_context import SessionContext
from app.realtime.speech_hints import ignored_hints, without_ignored_hints
from app.refusal import Refusal
from app.telemetry import log


def opening_options(context: SessionContext, start: dict[str, Any], asked_model: str = "") -> SessionOptions:
    """Return the default settings of the server and its model, merged with ``start``. Raises Refusal."""
    model = context.engine.model
    asked = asked_model or str(start.get("model") or "")[:200] or model.name
    kind = "transcription" if start.get("type") == "transcription" else "realtime"
    options = SessionOptions(
        type=kind,
        model=asked,
        output_modalities=["audio" if "speech" in model.abilities else "text"],
        instructions=context.instructions,
    )
    audio, voice = options.audio, model.voices[0].id if model.voices else ""
    input = replace(audio.input, transcription=Transcription()) if kind == "transcription" else audio.input
    options = replace(options, audio=replace(audio, input=input, output=replace(audio.output, voice=voice)))
    offer = functions_only(start, "session")
    if offer.refusal is not None:
        raise offer.refusal
    opened, _ = merged_options(context, options, offer.patch)
    check_settings(opened, model, "session")
    return opened


def merged_options(
    context: SessionContext, options: SessionOptions, patch: dict[str, Any]
) -> tuple[SessionOptions, list[str]]:
    """Return the settings merged with ``patch`` as they take effect, and the paths of unknown fields. Raises Refusal.

    With a duplex model there are no turns to detect or to transcribe, and it hears the microphone as it is.
    """
    merged, unknown = session_options(options, patch)
    if context.engine.model.duplex is not None:
        input = replace(merged.audio.input, turn_detection=None, transcription=None, noise_reduction=None)
        merged = replace(merged, audio=replace(merged.audio, input=input))
    _check_speaker(merged, context)
    return merged, unknown


def _check_speaker(options: SessionOptions, context: SessionContext) -> None:
    """Raise Refusal if the settings need the speaker encoder and the server has none, or if a voiceprint is missing."""
    detection, path = options.audio.input.turn_detection, "session.audio.input.turn_detection.speaker"
    wanted = "any" if detection is None else detection.speaker
    if options.parley.speakers and wanted in ("auto", "any"):
        wanted, path = "labels", "session.parley.speakers"
    if wanted in ("auto", "any"):
        return
    if context.speaker_encoder is None:
        message = f"{path} needs the model {MODEL}, which this server has not loaded. {INSTALL}"
        raise Refusal("unsupported_value", message, path)
    if detection is not None and wanted == "enrolled":
        voiceprint.read(detection.voiceprint or "")


def session_view(
    context: SessionContext,
    id: str,
    expires_at_s: int,
    options: SessionOptions,
    resume_token: str | None = None,
    tool_servers: tuple[dict[str, Any], ...] = (),
) -> server_events.SessionView:
    """Return a session as its client sees it."""
    model, voice = context.engine.model, context.voice(name_of(options.audio.output.voice))
    loaded: dict[str, Any] = {
        "model": model.name,
        "voice": voice,
        "voices": list(model.voice_ids),
        "voice_details": [msgspec.to_builtins(one) for one in model.voices],
        "examples": list(model.examples),
        "understands_speech": model.understands_speech,
        "notes": list(model.notes),
    }
    if model.duplex is not None:
        loaded["duplex"] = True
    if context.memory is not None:
        loaded["memory_available"] = True
    if resume_token is not None:
        loaded["resume_token"] = resume_token
    shown = without_ignored_hints(options, model)
    return server_events.SessionView(id, expires_at_s, shown, loaded, tool_servers)


def log_opening(context: SessionContext, session_id: str, options: SessionOptions) -> None:
    """Log the initial settings that were replaced by the loaded model or voice."""
    if options.model != context.engine.model.name:
        log("session.model_mapped", session=session_id, asked=options.model, loaded=context.engine.model.name)
    log_mapped(context, session_id, options, [])


def log_mapped(context: SessionContext, session_id: str, options: SessionOptions, unknown: list[str]) -> None:
    """Log settings that were replaced by the loaded model or voice, and the paths of ``unknown`` settings."""
    model, voice = context.engine.model, name_of(options.audio.output.voice)
    if unknown:
        log("session.unknown_fields", session=session_id, fields=listed(unknown))
    ears = options.audio.input.transcription
    if ears is not None and ears.model not in (None, model.name):
        log("session.transcription_mapped", session=session_id, asked=ears.model[:200], loaded=model.name)
    if ignored := ignored_hints(options, model):
        log("session.hints_ignored", session=session_id, fields=listed(ignored), model=model.name)
    if voice not in model.voice_ids:
        log("session.voice_mapped", session=session_id, asked=voice[:200], loaded=context.voice(voice))
