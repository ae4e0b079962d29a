"""Qwen2.5-Omni: text, sound, pictures and video in; text and streaming speech out; as transformers computes it.

The thinker writes text; the talker turns it into codes, fifty a second; code2wav makes them sound. The talker hears
the whole prompt: of each row the thinker's embedding (of sounds and pictures nothing) and last hidden row; then of each
token of the answer the same, as soon as the thinker has eaten it. So the talker begins one thinker's step later than
Qwen3-Omni's, and what travels is a row a token.

Source: the checkpoint's config.json and transformers 5.23, models/qwen2_5_omni. It knows no socket and no session.
"""

STAGES = {
    "thinker": f"{__name__}.thinker:Thinker",
    "talker": f"{__name__}.talker:Talker",
    "code2wav": f"{__name__}.code2wav:Code2Wav",
}
