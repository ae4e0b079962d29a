"""Options that `parley bench` had: each is refused with the command that replaces it."""

from __future__ import annotations

import pytest
from typer.testing import CliRunner

from app.cli import cli
from app.commands.moved_options import MOVED_FROM_BENCH


@pytest.mark.parametrize("option", MOVED_FROM_BENCH)
@pytest.mark.parametrize("form", ["{} 2", "{}=2"])
def test_an_option_that_moved_names_its_new_command(option: str, form: str) -> None:
    result = CliRunner().invoke(cli, ["bench", *form.format(option).split()], env={"COLUMNS": "200"})
    assert result.exit_code == 2
    assert f"{option} has moved: run `{MOVED_FROM_BENCH[option]}` in a clone of Parley" in result.stderr


def test_an_option_that_never_existed_is_unknown() -> None:
    result = CliRunner().invoke(cli, ["bench", "--agains", "bare"])
    assert result.exit_code == 2
    assert "No such option" in result.stderr
