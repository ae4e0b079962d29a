"""Qwen3-Omni-MoE: text, sound, pictures and video in; text and streaming speech out; as transformers computes it.

The thinker writes text; the talker turns it into codec frames, one text token a frame; code2wav makes them sound. What
goes from the thinker to the talker (``speakable``): the ids of the user's turns with their positions, and, where
sound or pictures stand, the thinker's hidden rows; then one id for each token to be spoken. The talker looks ids up in
the thinker's table of embeddings, which it maps (a GPU has its own), so that no tensor travels for text.

What was computed for a session is kept and taken over by its next request up to where the two prompts differ. A live
turn is prefilled while it is spoken: what comes before it at once, and of it each window of the encoder (eight seconds,
or ``options.window_s``) once that is full. At its end only the open window is left. With the camera on, a turn is a
video with its sound (the reference's use_audio_in_video): each window has the frames of its time, two a second. What
is shown before a window's first sound is prefilled as it comes; what is shown later in it stands behind sounds that
are not final, and is only looked at: at the turn's end, its rows are left with the open window's.

On a GPU a step of the thinker, and a whole frame of the talker with its code predictor, are one CUDA graph each, for
batch sizes and context lengths that double. ``options.graphs``: ``auto`` (where there is a GPU), ``on``
(the same steps anywhere; a CPU captures nothing) or ``off``. Prompts are computed kernel by kernel.

It has no recogniser: there is no transcript of what the user said. How far the voice is in the text (``text_end``) is
an estimate.

Source: the checkpoint's config.json and transformers 5.23, models/qwen3_omni_moe. It knows no socket and no session.
"""

STAGES = {
    "thinker": f"{__name__}.thinker:Thinker",
    "talker": f"{__name__}.talker:Talker",
    "code2wav": f"{__name__}.code2wav:Code2Wav",
}
