"""The Responses API without HTTP: a response as it grows, its items, its figures. Knows no route and no socket."""
