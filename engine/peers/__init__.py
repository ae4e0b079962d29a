"""The peers that the engine is measured against, each in a process of its own: ``python -m engine.peers NAME``.

A name selects a file that exports ``PEER``. Knows no clock of a client; nothing serves with it.
"""
