"""Downloads models of the catalogue: listed by a hub or a folder, fetched, checked, and recorded in a manifest."""
