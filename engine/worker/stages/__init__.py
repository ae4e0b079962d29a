"""Stages that belong to no model family, one file each, exporting STAGE."""
