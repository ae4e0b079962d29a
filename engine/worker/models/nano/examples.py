"""Example sentences for new users, which nano understands both spoken and typed."""

EXAMPLES = (
    "What can you do?",
    "What is seventeen plus twenty five?",
    "Spell the word morning.",
    "What day comes after Tuesday?",
    "Count to nine.",
    "My name is Anna.",
    "Repeat after me: good morning.",
)
