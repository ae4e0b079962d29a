"""The code that thinkers of omni checkpoints share: text, sound, pictures and video in; text, tool calls, and rows for
a talker out.

A family brings its ``Source`` (the checkpoint's facts, how it lays out what is heard and seen), its encoders, and a
``TalkerFeed``: what its talker is told of the thinker's rows. The rest is one: template, features, positions, the
prefill of prompts piece by piece, kept prompts of sessions, tokens to text. No family is named here.
"""
