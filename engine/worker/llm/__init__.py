"""Language models with a chat completions interface: request bodies, streamed answers, and the thinkers' shared code.

The base class of all these thinkers is ``thinker.ChatThinker``.
"""
