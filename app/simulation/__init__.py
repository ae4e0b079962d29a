"""Simulated callers: scenario files, calls to a deployment, and checks of what the caller heard.

``scenario`` reads a file, ``caller`` makes the call, ``listener`` records it, ``expectations`` checks the record, and
``report`` prints it. Knows the server only as a client does.
"""
