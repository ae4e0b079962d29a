"""Language models that are asked by the messages of a chat completion: what is asked, and how the answer comes.

Knows no tensor, and no thinker by name: what all of them share is ``thinker.ChatThinker``.
"""
