"""Moshi and PersonaPlex: one model that listens while it speaks.

In each frame of 80 ms, a language model hears the codes of the user's sound, and draws a text token and the codes of
its own sound. Mimi, a streaming codec, makes codes of sound and sound of codes.

Sources: transformers 5.23 (MoshiForConditionalGeneration, MimiModel), and the packages moshi 0.2 of Kyutai and
personaplex of NVIDIA for the parts that only these define: the order of streaming steps, and prompts.
"""

STAGES = {"duplex": f"{__name__}.stage:MoshiDuplex"}
