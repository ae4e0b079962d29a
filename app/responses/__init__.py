"""The Responses API without HTTP: the response object and its events, items and usage. It does no I/O."""
