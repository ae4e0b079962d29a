"""Other implementations to compare the engine with, each in its own process: ``python -m benchmarks.peers NAME``.

Each file of this package exports ``PEER``.
"""
