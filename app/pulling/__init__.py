"""Getting models of the catalogue from a hub, whole and as they are meant to be, or with one sentence why not."""
