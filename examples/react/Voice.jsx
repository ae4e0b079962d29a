import { useState } from "react";
import { useVoice } from "./useVoice.js";

const TIMER = { description: "Starts a timer.", properties: { minutes: { type: "number" } }, required: ["minutes"] };

/** A button, the state, the words, and one sentence when something is in the way. The model may start timers. */
export function Voice({ server }) {
  const [timers, setTimers] = useState([]);
  const { voice, state, lines, problem } = useVoice(
    { server },
    {
      set_timer: [
        TIMER,
        ({ minutes }) => {
          setTimers((before) => [...before, minutes]);
          return { started: true, minutes };
        },
      ],
    },
  );
  return (
    <>
      <button onClick={() => (voice.talking ? voice.end() : voice.start())}>{voice.talking ? "Hang up" : "Talk"}</button>
      <output>{state}</output>
      {problem && <p role="alert">{problem.message}</p>}
      <ul>
        {lines.map(({ who, item, text }) => (
          <li key={item}>{`${who}: ${text}`}</li>
        ))}
      </ul>
      {timers.map((minutes, n) => (
        <p className="timer" key={n}>{`a timer of ${minutes} minutes runs`}</p>
      ))}
    </>
  );
}
