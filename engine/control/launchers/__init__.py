"""Launchers start workers: as local processes, on a Ray cluster, or in this process (for tests)."""
