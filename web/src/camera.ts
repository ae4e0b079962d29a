/** A camera, or the screen: one device, open; its track, a preview, and stills small enough to send. */

import { ask, askForScreen } from "./devices";
import { jpegOf } from "./picture";

const SIZE = { width: { ideal: 640 }, height: { ideal: 480 }, frameRate: { ideal: 15 } };

export class Camera {
  /** For the page to show; plays the camera's picture. */
  readonly preview = document.createElement("video");

  private constructor(
    readonly track: MediaStreamTrack,
    readonly isScreen: boolean,
  ) {
    this.preview.muted = this.preview.playsInline = this.preview.autoplay = true;
    this.preview.srcObject = new MediaStream([track]);
  }

  /** Asks the user; `onLost` when the device goes away. Throws a Problem. */
  static async open(device: string | null, onLost: () => void): Promise<Camera> {
    return Camera.of(await ask("video", { ...SIZE, ...(device && { deviceId: { exact: device } }) }), false, onLost);
  }

  /** The screen, or the part of it that the user chooses. Throws a Problem. */
  static async share(onLost: () => void): Promise<Camera> {
    return Camera.of(await askForScreen(), true, onLost);
  }

  private static async of(stream: MediaStream, isScreen: boolean, onLost: () => void): Promise<Camera> {
    const track = stream.getVideoTracks()[0]!;
    track.addEventListener("ended", onLost, { once: true });
    const camera = new Camera(track, isScreen);
    await camera.preview.play().catch(() => undefined); // muted pictures play everywhere; where not, the still waits
    return camera;
  }

  get device(): string | null {
    return this.track.getSettings().deviceId ?? null;
  }

  /** This moment as a JPEG's data URI of at most so many bytes; null before the first picture. */
  still(maxBytes: number): string | null {
    return this.preview.videoWidth === 0 ? null : jpegOf(this.preview, this.preview.videoWidth, this.preview.videoHeight, maxBytes);
  }

  /** Lets the device go. May be called twice. */
  close(): void {
    this.track.stop();
    this.preview.srcObject = null;
  }
}
