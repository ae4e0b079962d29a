// The voice client in Gradio's page: its buttons, the conversation's words, and one figure a turn for Python's table.
// Runs inside Gradio's function, which gives it `element` and `trigger`; the library is the page's own.

const root = new URL("../", new URL(location.pathname.endsWith("/") ? "." : `${location.pathname}/`, location.href));
const find = (name) => element.querySelector(`.${name}`);
const STATES = {
  idle: "Press Talk, and allow the microphone",
  connecting: "Connecting …",
  lost: "The line is lost; trying again …",
  waiting: "The server is full: you are in line",
  ready: "Connected; the microphone is off",
  muted: "Muted",
  listening: "Listening",
  hearing: "Hearing you",
  thinking: "Thinking",
  speaking: "Speaking",
};

import(new URL("voice.js", root).href).then(({ VoiceClient }) => {
  const voice = new VoiceClient({ server: root });
  const words = new Map(); // by item: its line of the conversation
  const models = fetch(new URL("v1/models", root)).then((answer) => answer.json()).then(({ data }) => data[0]);

  const line = (who, item) => {
    if (!words.has(item)) {
      const made = document.createElement("li");
      made.className = who;
      find("words").append(made);
      words.set(item, made);
    }
    return words.get(item);
  };
  const show = (who, item, text, final) => {
    if (who === "answer" && final) return; // its pieces stand there
    const made = line(who, item);
    if (who === "user" && !final) return; // what they seemed to say stands there already; all of it follows
    made.textContent = final ? text || (who === "user" ? "(not understood)" : made.textContent) : made.textContent + text;
    made.scrollIntoView({ block: "nearest" });
  };
  const problem = (text) => {
    find("problem").hidden = !text;
    find("problem").textContent = text ?? "";
  };
  const refresh = () => {
    element.querySelector(".voice").dataset.state = voice.state;
    find("state").textContent = STATES[voice.state];
    find("talk").textContent = voice.talking ? "End" : "Talk";
    find("mute").disabled = !voice.talking;
    find("mute").setAttribute("aria-pressed", String(voice.muted));
    find("mute").textContent = voice.muted ? "Unmute" : "Mute";
    find("stop").disabled = !voice.answering;
    showCamera();
  };
  const showCamera = () => {
    const preview = voice.inputs.camera?.preview;
    find("camera").setAttribute("aria-pressed", String(preview !== undefined));
    find("camera").textContent = preview ? "Camera off" : "Camera";
    find("preview").hidden = preview === undefined;
    if (find("preview").firstChild !== (preview ?? null)) find("preview").replaceChildren(...(preview ? [preview] : []));
  };
  const look = () => voice.inputs.look(voice.inputs.camera ? false : null).catch((error) => problem(error.message));

  voice.on("change", refresh);
  voice.on("text", show);
  voice.on("hearing", (item, text) => (line("user", item).textContent = text));
  voice.on("spoke", (item) => line("user", item));
  voice.on("problem", (found) => problem(found && found.message));
  voice.on("picture", (picture, item) => {
    const shown = Object.assign(document.createElement("img"), { src: picture, alt: "What the model is shown" });
    const made = Object.assign(document.createElement("li"), { className: "user" });
    made.append(shown);
    line("user", item).before(made);
  });
  voice.on("cut", (item, heard) => {
    const made = words.get(item);
    if (!made || heard === null) return;
    const rest = Object.assign(document.createElement("span"), { className: "unheard" });
    rest.textContent = made.textContent.slice(heard.length);
    made.replaceChildren(heard, rest);
  });
  voice.on("firstSound", ({ heard_ms, after, ledger }) => {
    if (ledger !== null) trigger("submit", { heard_ms, after, terms_ms: { turn: ledger.turn_ms ?? 0, ...ledger.terms_ms } });
  });

  find("talk").onclick = () => (voice.talking ? voice.end() : voice.start());
  find("mute").onclick = () => voice.mute(!voice.muted);
  find("stop").onclick = () => voice.stop();
  find("camera").onclick = look;
  find("voices").onchange = ({ target }) => voice.useVoice(target.value);
  find("eagerness").onchange = ({ target }) => voice.setEagerness(target.value);
  find("instructions").onchange = ({ target }) => voice.setInstructions(target.value.trim());
  voice.loaded().then(({ voice_details, examples, abilities }) => {
    find("voices").append(...voice_details.map(({ id, name }) => new Option(name, id)));
    find("choice").hidden = voice_details.length < 2;
    find("camera").hidden = !abilities.includes("image");
    find("examples").append(...examples.map(example));
  });

  /** A question that the model understands, to be asked by a click. */
  const example = (question) => {
    const made = document.createElement("button");
    made.type = "button";
    made.textContent = question;
    made.onclick = () => voice.ask(question);
    return made;
  };

  const watch = () => {
    const { user, answer } = voice.levels();
    find("level").firstElementChild.style.transform = `scaleX(${Math.max(user, answer)})`;
    requestAnimationFrame(watch);
  };
  watch();
  refresh();

  /** What was heard in a recording, in words. */
  const heard = async (file) => {
    const form = new FormData();
    form.append("model", (await models).id);
    form.append("file", file, "recording");
    const answer = await fetch(new URL("v1/audio/transcriptions", root), { method: "POST", body: form });
    const { text, error } = await answer.json();
    if (error) throw new Error(error.message);
    return text;
  };

  /** Have what was typed answered, with the picture, and the words of the recordings and texts beside it. */
  const say = async ({ text, files }) => {
    const parts = [text];
    let picture = null;
    for (const { url, mime_type } of files ?? []) {
      const file = await (await fetch(url)).blob();
      const kind = mime_type || file.type;
      if (kind.startsWith("image/")) picture = await voice.read(file);
      else parts.push(kind.startsWith("audio/") ? await heard(file) : (await file.text()).slice(0, 4000));
    }
    const said = parts.filter(Boolean).join("\n");
    if (said || picture) voice.ask(said, picture);
  };

  window.parley = {
    /** Whether it went out. */
    say: (message) =>
      say(message).then(
        () => true,
        (error) => {
          problem(error.message);
          return false;
        },
      ),
  };
});
