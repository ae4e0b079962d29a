"""The work of each `parley` command; their options are declared in app/cli.py."""
