"""Stages that belong to no model family: one file each, which exports STAGE."""
