/**
 * The library behind the page, for any page to use: built as `voice.js`, and as an npm package.
 *
 *     import { VoiceClient } from "/voice.js";
 *     const voice = new VoiceClient();
 *     voice.on("text", (who, item, text, final) => final && console.log(who, text));
 *     voice.tool("get_time", { description: "The time of day." }, () => new Date().toLocaleTimeString());
 *     button.onclick = () => voice.start();      // microphone and loudspeaker, over WebRTC or a WebSocket
 *     voice.ask("What can you do?");
 */

export { VoiceClient } from "./voice";
export { devices, type Device } from "./devices";
export { keyFrom } from "./key";
export { STEPS, type Step } from "./probe";
export { Problem, problemOf, type Code } from "./problem";
export { Trial } from "./trial";
export type { Wanted } from "./dial";
export type { After, FirstSound } from "./first_sound";
export type { Ticket } from "./resume";
export type { LineKind, Place } from "./line";
export type { Arguments, Schema, ValueOf } from "./schema";
export type { Eagerness } from "./session";
export type { ToolCall, ToolContext, ToolOptions } from "./tools";
export type { Key, SessionSettings, VoiceEvents, VoiceOptions, VoiceState, Who } from "./voice_events";
export type { ClientEvent, Loaded, ServerEvent, Session } from "./wire";
