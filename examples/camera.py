"""Speak a question to a server while it watches a camera.

    python examples/camera.py question.wav --camera /dev/video0 --url http://127.0.0.1:8000

The question is a WAV file of 16-bit samples at 24 kHz, for example one that ``parley say "What do you see?" -o
question.wav`` has made. While it is spoken, a picture a second goes beside it (``parley.camera.frame``) and becomes a
part of the spoken turn. ``--camera`` may name a video file, too. A page does the same by a track of its WebRTC call.
"""

from __future__ import annotations

import argparse
import asyncio
import base64
import wave
from fractions import Fraction

import av
import numpy as np
from av.container import InputContainer

from parley_voice.app.client import Client, ClientError, connect

EVERY_S = 1.0
LIVE = "/dev/"


def pictures(camera: str) -> InputContainer:
    """Open a camera of Linux, or a video file."""
    return av.open(camera, format="v4l2" if camera.startswith(LIVE) else None)


def jpeg(frame: av.VideoFrame) -> bytes:
    """Encode a frame as a JPEG."""
    encoder = av.CodecContext.create("mjpeg", "w")
    assert isinstance(encoder, av.VideoCodecContext)
    encoder.width, encoder.height, encoder.pix_fmt = frame.width, frame.height, "yuvj420p"
    encoder.time_base = Fraction(1, 25)
    return b"".join(bytes(packet) for packet in encoder.encode(frame.reformat(format="yuvj420p")))


async def watch(client: Client, camera: str) -> None:
    """Show the server a picture a second, as long as the camera has any."""
    with pictures(camera) as container:
        frames, clock, shown_s = container.decode(video=0), asyncio.get_running_loop().time, -EVERY_S
        begun_s, first_s = clock(), None
        while (frame := await asyncio.to_thread(next, frames, None)) is not None:
            if not camera.startswith(LIVE):  # a file is read sooner than it was seen
                at_s = frame.time or 0.0
                first_s = at_s if first_s is None else first_s  # a part of a longer film does not begin at 0
                await asyncio.sleep(begun_s + at_s - first_s - clock())
            now_s = clock() - begun_s
            if now_s - shown_s >= EVERY_S:
                url = f"data:image/jpeg;base64,{base64.b64encode(jpeg(frame)).decode()}"
                await client.send("parley.camera.frame", image_url=url)
                shown_s = now_s


async def main() -> None:
    parser = argparse.ArgumentParser(description="Speak a question about what a camera sees.")
    parser.add_argument("question")
    parser.add_argument("--camera", default="/dev/video0")
    parser.add_argument("--url", default="http://127.0.0.1:8000")
    chosen = parser.parse_args()
    with wave.open(chosen.question) as file:
        question = np.frombuffer(file.readframes(file.getnframes()), "<i2")
    async with connect(chosen.url) as client, asyncio.TaskGroup() as tasks:
        watching = tasks.create_task(watch(client, chosen.camera))
        await client.speak(question)
        answer = await client.answer()
        watching.cancel()
    print(answer.text)
    if answer.error:
        raise SystemExit(answer.error)


if __name__ == "__main__":
    try:
        asyncio.run(main())
    except (ClientError, OSError, EOFError, wave.Error) as error:
        raise SystemExit(str(error)) from None
    except ExceptionGroup as errors:  # of the camera, or of the connection
        raise SystemExit(str(errors.exceptions[0])) from None
