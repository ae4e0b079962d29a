"""Shared code of the thinkers and talkers of omni models.

Input: text, audio, pictures and video. Output: text, tool calls, and rows for a talker. A model family provides its
``OmniSource`` (facts about the checkpoint, and the layout of media in a prompt), its encoders, and a ``TalkerFeed``
(what its talker receives). Everything else is shared: template, features, rope positions, chunked prefill, the prefix
cache, and detokenization. No family is named here.

Terms:

- row: one position of a prompt, or the vector computed for it. A text token is one row, a picture or a clip has many.
- block: the consecutive rows of one picture, one video, or one window of audio.
- window: the audio frames that the audio encoder processes together, independently of other windows.
- cell: the square of pixels that becomes one row of a picture.
- name: an integer that identifies a row's content (a token id or a hash), to find reusable prefixes.
"""
