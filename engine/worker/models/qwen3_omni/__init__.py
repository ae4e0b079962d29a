"""Qwen3-Omni-MoE: text, audio, images and video in; text and streaming speech out.

The thinker writes text, the talker turns it into codec frames (one per text token), and code2wav decodes these to
audio. The thinker sends the talker (``speakable``) the token ids of the user's turns with their positions, hidden rows
where there is audio or an image, then one id per token to speak. The talker looks the ids up in the thinker's embedding
table (memory-mapped on a CPU, copied on a GPU), so no tensor is sent for text.

Computed prefixes are kept per session and reused up to the first difference between two prompts. Live input is
prefilled while the user speaks: the earlier conversation immediately, then each full window of the audio encoder (eight
seconds, or ``options.window_s``), so at the end of the turn only the last window remains. With the camera on, a turn is
a video with audio (the reference's use_audio_in_video): each window contains the frames of its time, two per second. A
frame before a window's first audio is prefilled when it arrives. A later frame follows audio that is not final yet, so
it is only encoded, and prefilled with the last window.

On a GPU, a thinker step and a whole talker frame (with its code predictor) are one CUDA graph each, for batch sizes and
context lengths in powers of two. ``options.graphs`` is ``auto`` (on a GPU), ``on`` (the same steps on any device,
without capture on a CPU) or ``off``. Prefills run without graphs.

The model has no speech recognizer, so there is no transcript of the user's speech. The position of the voice in the
text (``text_end``) is an estimate.

The outputs equal those of transformers. Sources: the checkpoint's config.json and transformers 5.23,
models/qwen3_omni_moe.
"""

STAGES = {
    "thinker": f"{__name__}.thinker:Thinker",
    "talker": f"{__name__}.talker:Talker",
    "code2wav": f"{__name__}.code2wav:Code2Wav",
}
