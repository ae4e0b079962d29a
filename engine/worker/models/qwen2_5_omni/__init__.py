"""Qwen2.5-Omni: text, audio, images and video in; text and streaming speech out.

The thinker writes text, the talker turns it into codes (50 per second), and code2wav decodes these to audio. The talker
reads the whole prompt: for each row, the thinker's embedding (zero for audio and images) plus its last hidden row. It
then reads the same sum for each token of the answer, after the thinker has computed the token. So the talker starts one
thinker step later than Qwen3-Omni's, and each token is sent as a row instead of an id.

The outputs equal those of transformers. Sources: the checkpoint's config.json and transformers 5.23,
models/qwen2_5_omni.
"""

STAGES = {
    "thinker": f"{__name__}.thinker:Thinker",
    "talker": f"{__name__}.talker:Talker",
    "code2wav": f"{__name__}.code2wav:Code2Wav",
}
