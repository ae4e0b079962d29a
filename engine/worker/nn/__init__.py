"""Torch building blocks shared by model families."""
