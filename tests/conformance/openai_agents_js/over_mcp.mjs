// The Agents SDK for JavaScript in a Realtime session, with a hosted MCP tool: the server calls it, the SDK asks for
// the answer that tells of the result.

import { hostedMcpTool } from "@openai/agents-core";
import { OpenAIRealtimeWebSocket, RealtimeAgent, RealtimeSession } from "@openai/agents-realtime";
import { Feed, HOSTED_CALL, run } from "./part.mjs";

run(async (task) => {
  const report = { errors: [] };
  const feed = new Feed();
  const asked = [];
  let bytes = 0;
  const tool = hostedMcpTool({
    serverLabel: "weather",
    serverUrl: task.tools,
    authorization: "sesame",
    requireApproval: task.scenario === "mcp_approved" ? "always" : "never",
  });
  const agent = new RealtimeAgent({ name: "Assistant", instructions: "Be brief.", tools: [tool] });
  const session = new RealtimeSession(agent, {
    transport: new OpenAIRealtimeWebSocket({ url: `ws://${task.base}/v1/realtime?model=gpt-realtime` }),
    model: "gpt-realtime",
    tracingDisabled: true,
  });
  session.on("error", ({ error }) => report.errors.push(String(JSON.stringify(error) ?? error)));
  session.on("audio", ({ data }) => (bytes += data.byteLength));
  session.on("transport_event", (event) => feed.push(event.type, event));
  session.on("tool_approval_requested", (_context, _agent, { approvalItem }) => {
    asked.push(approvalItem.rawItem.name);
    session.approve(approvalItem);
  });
  session.on("mcp_tool_call_completed", (_context, _agent, { name, arguments: written }) => {
    report.call = { name, arguments: written };
  });
  await session.connect({ apiKey: "sk-none" });
  await feed.until("mcp_list_tools.completed");
  session.sendMessage(HOSTED_CALL);
  for (;;) {
    const { response } = await feed.until("response.done");
    if (response.status !== "completed") throw new Error(`the response is ${JSON.stringify(response)}`);
    const [first] = response.output;
    if (first.type !== "message") continue;
    report.transcript = first.content[0].transcript;
    break;
  }
  if (!bytes) throw new Error("nothing was said aloud");
  if (asked.length !== (task.scenario === "mcp_approved" ? 1 : 0)) throw new Error(`approvals: ${asked}`);
  session.close();
  return report;
});
