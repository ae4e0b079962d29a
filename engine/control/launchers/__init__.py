"""Launchers start worker processes: locally, on a Ray cluster, or in this process for tests."""
