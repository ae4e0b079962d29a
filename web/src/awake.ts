/** Keeps a phone's screen on in a call, and names the call on its lock screen. */

import type { VoiceState } from "./library";

let inCall = false;
let lock: Promise<WakeLockSentinel | null> | null = null;

/** A browser without these works on without them. */
export function stayAwake(state: VoiceState, talking: boolean, stop: () => void): void {
  inCall = talking && state !== "idle";
  updateLock();
  if (!("mediaSession" in navigator)) return;
  navigator.mediaSession.playbackState = state === "speaking" ? "playing" : "none";
  if (inCall && navigator.mediaSession.metadata === null) {
    navigator.mediaSession.metadata = new MediaMetadata({ title: "Parley", artist: "A conversation" });
    navigator.mediaSession.setActionHandler("pause", stop);
    navigator.mediaSession.setActionHandler("stop", stop);
  }
}

/** Browsers release the lock of a hidden page, and refuse it one. */
function updateLock(): void {
  const wanted = inCall && document.visibilityState === "visible" && "wakeLock" in navigator;
  if (wanted === (lock !== null)) return;
  if (wanted) {
    lock = navigator.wakeLock.request("screen").catch(() => null);
  } else {
    void lock!.then((held) => held?.release());
    lock = null;
  }
}

document.addEventListener("visibilitychange", updateLock);
