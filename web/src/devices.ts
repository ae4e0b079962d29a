/** The browser's microphones, cameras and loudspeakers: which there are, and the user's consent to one. */

import { HOME } from "./home";
import { Problem } from "./problem";

export type DeviceKind = "audio" | "video";

const NOUN: Record<DeviceKind, string> = { audio: "microphone", video: "camera" };
const LISTED: Record<"audioinput" | "audiooutput" | "videoinput", string> = {
  audioinput: "Microphone",
  audiooutput: "Loudspeaker",
  videoinput: "Camera",
};

export interface Device {
  readonly id: string;
  readonly name: string;
}

/** The devices of a kind; browsers name them only after the user's consent. */
export async function devices(kind: MediaDeviceKind): Promise<Device[]> {
  const all = (await navigator.mediaDevices?.enumerateDevices()) ?? [];
  return all
    .filter((device) => device.kind === kind && device.deviceId !== "")
    .map(({ deviceId, label }, at) => ({ id: deviceId, name: label || `${LISTED[kind]} ${at + 1}` }));
}

/** The user's consent and the device. Throws the Problem that names what is in the way. */
export async function ask(kind: DeviceKind, constraints: MediaTrackConstraints): Promise<MediaStream> {
  const noun = NOUN[kind];
  if (!window.isSecureContext) throw insecure(noun);
  if (navigator.mediaDevices === undefined) {
    throw new Problem("unsupported", `This browser gives pages no ${noun}: use a current Chrome, Firefox or Safari, or type.`);
  }
  try {
    return await navigator.mediaDevices.getUserMedia({ [kind]: constraints });
  } catch (error) {
    throw refusal(error as DOMException, noun);
  }
}

/** The user's consent to share the screen, or a part of it. Throws the Problem that names what is in the way. */
export async function askForScreen(): Promise<MediaStream> {
  if (!window.isSecureContext) throw insecure("screen");
  if (navigator.mediaDevices?.getDisplayMedia === undefined) {
    throw new Problem("unsupported", "This browser shares no screen: use the camera, or add a picture.");
  }
  try {
    return await navigator.mediaDevices.getDisplayMedia({ video: { frameRate: { ideal: 5 } } });
  } catch (error) {
    const { name, message } = error as DOMException;
    if (name === "NotAllowedError") throw new Problem("permission", "The screen is not shared: choose a window or a tab to share it.");
    throw new Problem("device", `The screen could not be shared (${name}: ${message}): try again.`);
  }
}

/** This page's address keeps browsers from opening a device. */
export function insecure(noun: string): Problem {
  if (HOME === null || new URL(HOME).origin !== location.origin) {
    return new Problem("insecure", `Browsers open a ${noun} only on https or localhost: open this page by https. Typing works as it is.`);
  }
  const how = `start the server with \`parley serve --https auto\`, then open https://${location.host} instead. Typing works as it is.`;
  return new Problem("insecure", `Browsers open a ${noun} only on https or localhost: ${how}`);
}

/** By the DOMException's name (Media Capture and Streams §10.2). */
function refusal(error: DOMException, noun: string): Problem {
  switch (error.name) {
    case "NotAllowedError":
      return new Problem("permission", `The ${noun} is blocked: allow it in the address bar, then try again.`);
    case "NotFoundError":
    case "OverconstrainedError":
      return new Problem("no-device", `No ${noun} was found: plug one in or choose another in the settings, then try again.`);
    case "NotReadableError":
      return new Problem("busy", `Another program holds the ${noun}: close that program, then try again.`);
    default:
      return new Problem("device", `The ${noun} did not open (${error.name}: ${error.message}): try again, or type.`);
  }
}
