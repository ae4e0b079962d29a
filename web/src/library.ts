/**
 * The library behind the page, for any page to use: built as `voice.js`.
 *
 *     import { VoiceClient } from "/voice.js";
 *     const voice = new VoiceClient();
 *     voice.on("text", (who, item, text, final) => console.log(who, text));
 *     button.onclick = () => voice.start();      // microphone and loudspeaker, over WebRTC or a WebSocket
 *     voice.ask("What can you do?");
 */

export { VoiceClient } from "./voice";
export { devices, type Device } from "./devices";
export { STEPS, type Step } from "./probe";
export { Problem, problemOf, type Code } from "./problem";
export { Trial } from "./trial";
export type { Wanted } from "./dial";
export type { After, FirstSound } from "./first_sound";
export type { Ticket } from "./resume";
export type { LineKind, Place } from "./line";
export type { Eagerness } from "./session";
export type { VoiceEvents, VoiceOptions, VoiceState, Who } from "./voice_events";
export type { ClientEvent, Loaded, ServerEvent, Session } from "./wire";
