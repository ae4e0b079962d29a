"""All fixed sentences of nano; each is one token of its language model.

nano's other output repeats the user's words or comes from its own tools (``own``).
"""

# fmt: off

from __future__ import annotations

UNHEARD = ("Sorry, I didn't catch that.", "Sorry, I didn't catch that. Can you say it again?")
BIGGER = "Load a bigger model to ask me that."
REFUSALS = (f"I don't know. {BIGGER}", f"I don't know that. I am only a small model. {BIGGER}")
HAND_OVER = "Stop me and start Parley with a config of Qwen3 Omni. That one needs a graphics card."
NO_TOOL = "I cannot do that. I was given no tool for it."

SAYINGS = (
    "Hello! What can I do for you?", "Hello! I am nano. How can I help?", "Goodbye! It was nice to talk to you.",
    "You are welcome!", "I am fine, thank you. How can I help?", "My name is nano.",
    "I can see colors, shapes and numbers, repeat and spell words, do sums, count, remember your name, and tell the "
    "time.",
    "I cannot talk freely, and I know nothing about the world. For that, load a bigger model.",
    "I am nano, a tiny language model that runs on this computer.",
    "I was trained on made up dialogues by the makers of Parley.", "I run on this computer.",
    "Yes, I am here. What can I do for you?", "I only speak English.",
    "Why did the robot cross the road? It was programmed by a chicken.",
    "What do you call a bear without teeth? A gummy bear.", "Why was six afraid of seven? Because seven eight nine.",
    "Heads.", "Tails.", *(f"You rolled a {n}." for n in range(1, 7)),
    "Thank you, that is kind.", "I am sorry. I am only a small model.", "No problem.", "Okay.",
    "I am glad to hear that.", "I am sorry to hear that.", *UNHEARD,
    "a, b, c, d, e, f, g, h, i, j, k, l, m, n, o, p, q, r, s, t, u, v, w, x, y, z.",
    "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday.",
    "January, February, March, April, May, June, July, August, September, October, November, December.",
    "A week has 7 days.", "A year has 12 months.", *REFUSALS, HAND_OVER, NO_TOOL,
    "Done.", "That did not work.", "For how long?", "In which city?", "To which level?", "Which color?",
    "Which numbers?", "Which word?", "What shall I say?", "Up to which number?", "After which day?",
)
