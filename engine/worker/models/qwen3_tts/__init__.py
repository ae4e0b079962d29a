"""Qwen3-TTS, 12 Hz: text in, token by token; speech out, frame by frame; as the package qwen-tts 0.1.1 computes.

The talker turns text into codec frames of sixteen codes, one text token a frame; code2wav makes them sound. Who speaks
depends on the checkpoint: CustomVoice has speakers of its own, VoiceDesign speaks as ``options.designs`` describe, and
Base as the recordings of ``options.clones`` sound.

A clone with the words of its recording (``text``) is imitated in context: the recording's frames stand before the
answer's, in the talker and in code2wav, which is told them and how many they are, and gives no sound of them. A clone
without them is an embedding of the speaker alone.

With ``options.layout: streaming`` the text goes in as it comes, one token beside each frame, so that the first frame
needs the first word alone; one of a clone in context needs so many tokens as lie beside the recording's frames. With
``whole`` all of the text stands before the first frame.

Source: the checkpoint's config.json and qwen-tts 0.1.1. It knows no socket and no session.
"""

STAGES = {
    "talker": f"{__name__}.talker:Talker",
    "code2wav": f"{__name__}.code2wav:Code2Wav",
}
