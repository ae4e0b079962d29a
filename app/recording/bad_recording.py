"""The error of a file that cannot be replayed."""


class BadRecording(Exception):
    """A file that is no recording, or one that is cut, edited or too new."""
