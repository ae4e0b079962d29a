"""`python -m app` is the `parley` command."""

from app.cli import main

main()
