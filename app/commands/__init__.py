"""What each `parley` command does; their options are declared in app/cli.py."""
