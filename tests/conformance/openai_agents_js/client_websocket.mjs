// The Agents SDK for JavaScript over a WebSocket: its user's program records and plays.

import { OpenAIRealtimeWebSocket } from "@openai/agents-realtime";
import { ENOUGH_S, run, seconds, speak } from "./part.mjs";
import { SCENARIOS, User } from "./user.mjs";

run(async (task) => {
  let bytes = 0;
  const transport = new OpenAIRealtimeWebSocket({ url: `ws://${task.base}/v1/realtime?model=gpt-realtime` });
  const user = new User(transport, {
    speak: () => speak(task, (piece) => user.session.sendAudio(Uint8Array.from(piece).buffer)),
    heardS: () => seconds(bytes),
  });
  user.session.on("audio", ({ data }) => (bytes += data.byteLength));
  user.enough = async () => {
    while (user.heardS() < ENOUGH_S) await user.feed.until("response.output_audio.delta");
  };
  await user.session.connect({ apiKey: "sk-none" });
  await SCENARIOS[task.scenario](user);
  user.session.close();
  return user.report;
});
