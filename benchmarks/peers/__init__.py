"""Peers that the engine is compared with, each in a process of its own: ``python -m benchmarks.peers NAME``.

A name selects a file that exports ``PEER``.
"""
