"""`python -m parley_voice.app` is the `parley` command."""

from app.cli import main

main()
