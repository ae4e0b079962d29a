"""The end-of-turn models of a deployment: the one of its configuration, and those that a session may name."""

from __future__ import annotations

from pathlib import Path

from app.realtime.input.endpointing import SentenceEndOfTurn
from app.realtime.input.fused_end_of_turn import FusedEndOfTurn
from app.realtime.input.smart_turn import SmartTurn
from app.realtime.ports import EndOfTurnModel
from engine import ConfigError, ModelInfo


class EndOfTurnChoice:
    """The models for the setting ``server.turns.end_of_turn``.

    Raises:
        ConfigError: The setting names a file that is missing, or no model of Smart Turn's signature.
    """

    def __init__(self, setting: str) -> None:
        self._setting = setting
        self.models: dict[str, EndOfTurnModel] = {"words": SentenceEndOfTurn()}
        """Models by the names of ``turn_detection.end_of_turn``."""
        if setting != "words":
            self.models["smart_turn"] = FusedEndOfTurn(_sound_model(setting))

    def model(self, info: ModelInfo) -> EndOfTurnModel:
        """Return the model of sessions that name none."""
        prefers_words = self._setting == "words" or (self._setting == "auto" and bool(info.hears_for))
        return self.models["words" if prefers_words else "smart_turn"]


def _sound_model(setting: str) -> SmartTurn:
    if setting in ("auto", "smart_turn"):
        return SmartTurn()
    if "/" not in setting and not setting.endswith(".onnx"):
        known = "auto, smart_turn, words or the path of an ONNX file"
        raise ConfigError(f"server.turns.end_of_turn: must be {known} (got {setting!r})")
    model = SmartTurn(Path(setting))
    try:
        model.check()
    except ConfigError as error:
        raise ConfigError(f"server.turns.end_of_turn: {error}") from None
    return model
