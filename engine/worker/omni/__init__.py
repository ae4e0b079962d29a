"""Shared code of the thinkers and talkers of omni models.

Input: text, audio, pictures and video. Output: text, tool calls, and rows for a talker. A model family provides its
``OmniSource`` (facts about the checkpoint, and the layout of media in a prompt), its encoders, and a ``TalkerFeed``
(what its talker receives). Everything else is shared: template, features, rope positions, chunked prefill, the prefix
cache, and detokenization. No family is named here.
"""
