"""The implementation of each `parley` command. Their options are declared in app/cli.py."""
