/** The session's settings that a conversation begins with. */

const TURNS = { type: "server_vad", create_response: true, interrupt_response: true };

/** `handsFree`: the server finds the turns, else the client says them; `more` is merged over it, in the protocol's words. */
export function sessionOf(handsFree: boolean, voice: string | null, more: object = {}): object {
  return {
    parley: { resume: true },
    output_modalities: ["audio"],
    audio: {
      input: { transcription: { model: "default" }, turn_detection: handsFree ? TURNS : null },
      ...(voice && { output: { voice } }),
    },
    ...more,
  };
}
