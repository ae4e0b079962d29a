"""Recorded sessions: a file with all events of one session, and its replay.

``writer`` and ``taps`` record a session while it runs. ``file`` reads a recording, ``replay`` runs it again in virtual
time, and ``comparison`` prints the differences. The file format is the page's download, with more kinds of lines.
"""
