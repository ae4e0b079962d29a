"""Descriptions of deployments: configuration, model catalogue, and stages by name."""
