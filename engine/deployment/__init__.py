"""Describe a deployment: configuration, model catalog, stages by name."""
