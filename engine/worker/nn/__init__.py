"""Torch building blocks that model families share."""
