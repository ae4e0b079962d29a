"""Qwen3-TTS, 12 Hz: streaming text in, streaming speech out.

The talker turns text into codec frames of sixteen codes, one text token per frame, and code2wav decodes them. The
voices depend on the checkpoint: CustomVoice has built-in speakers, VoiceDesign speaks as ``options.designs`` describe,
and Base clones the recordings of ``options.clones``.

A clone with the transcript of its recording (``text``) is imitated in context: the recording's frames precede the
answer's frames in the talker and in code2wav, which decodes them without output. A clone without a transcript uses only
a speaker embedding.

With ``options.layout: streaming``, text enters as it arrives, one token per frame, so the first frame needs only the
first word. A clone in context first needs as many tokens as its recording has frames. With ``whole``, all text precedes
the first frame.

The outputs equal those of the package qwen-tts. Sources: the checkpoint's config.json and qwen-tts 0.1.1.
"""

STAGES = {
    "talker": f"{__name__}.talker:Talker",
    "code2wav": f"{__name__}.code2wav:Code2Wav",
}
