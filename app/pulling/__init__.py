"""Download of models in the catalogue from a hub, package registries, mirrors or a folder, with checks and a
manifest.
"""
