"""Sentences that people may say to nano when they see it for the first time, and be understood: by its ears, and
typed."""

EXAMPLES = (
    "What can you do?",
    "What is seventeen plus twenty five?",
    "Spell the word morning.",
    "What day comes after Tuesday?",
    "Count to nine.",
    "My name is Anna.",
    "Repeat after me: good morning.",
)
