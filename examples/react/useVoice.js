import { useEffect, useState, useSyncExternalStore } from "react";
import { VoiceClient } from "parley-voice";

/** One client for as long as a component is there; it hangs up when the component goes. `options` count at the beginning. */
export function useVoice(options, tools = {}) {
  const [voice] = useState(() => new VoiceClient(options));
  const [lines, setLines] = useState([]);
  const [problem, setProblem] = useState(null);
  const state = useSyncExternalStore((changed) => voice.on("change", changed), () => voice.state);

  useEffect(() => {
    const ends = Object.entries(tools).map(([name, [schema, run]]) => voice.tool(name, schema, run));
    ends.push(voice.on("text", (who, item, text, final) => final && setLines((before) => [...before, { who, item, text }])));
    ends.push(voice.on("problem", setProblem));
    return () => {
      for (const end of ends) end();
      voice.end();
    };
  }, [voice]); // eslint-disable-line react-hooks/exhaustive-deps
  return { voice, state, lines, problem };
}
