"""The Responses API without HTTP: the response object and its events, items and usage. Knows no route and no socket."""
