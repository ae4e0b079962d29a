"""nano's stages refuse options that they do not have."""

from __future__ import annotations

import pytest

from engine.errors import ConfigError
from engine.worker.models.nano import STAGES
from engine.worker.stage import StageConfig
from engine.worker.uses import stage_type


@pytest.mark.parametrize("name", STAGES)
def test_an_unknown_option_is_refused_with_the_list(name: str) -> None:
    stage = stage_type(f"nano.{name}")
    stage.describe(StageConfig(options={"remember_mb": 2, "voice": "slt"}))
    with pytest.raises(ConfigError, match=r"^options: unknown key voices; there are remember_mb, voice$"):
        stage.describe(StageConfig(options={"voices": "slt"}))
