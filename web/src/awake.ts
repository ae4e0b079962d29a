/** Keeps a phone's screen on in a call, and tells its lock screen what goes on. */

import type { VoiceState } from "./library";

let lock: Promise<WakeLockSentinel | null> | null = null;

/** A browser without these works on without them. */
export function stayAwake(state: VoiceState, talking: boolean, stop: () => void): void {
  const inCall = talking && state !== "idle";
  if (inCall && lock === null && "wakeLock" in navigator) lock = navigator.wakeLock.request("screen").catch(() => null);
  if (!inCall && lock !== null) {
    void lock.then((held) => held?.release());
    lock = null;
  }
  if (!("mediaSession" in navigator)) return;
  navigator.mediaSession.playbackState = state === "speaking" ? "playing" : "none";
  if (inCall && navigator.mediaSession.metadata === null) {
    navigator.mediaSession.metadata = new MediaMetadata({ title: "Parley", artist: "A conversation" });
    navigator.mediaSession.setActionHandler("pause", stop);
    navigator.mediaSession.setActionHandler("stop", stop);
  }
}

document.addEventListener("visibilitychange", () => {
  if (document.visibilityState === "hidden") lock = null; // the browser has released it; the next change asks again
});
