// A page that chats with a program: opens it with progress, shows answers as they come, stops, takes back. What a model says is
// text and nothing else.

import { Model } from "../index.js";

const at = (id) => document.getElementById(id);
let [model, chat] = [null, null];

const say = (words) => (at("state").textContent = words);

function shown(who, text) {
  const line = document.createElement("p");
  line.className = who;
  line.textContent = text;
  at("talk").append(line);
  line.scrollIntoView();
  return line;
}

/** What may be done now. */
function may({ ask, stop }) {
  for (const id of ["question", "send", "undo"]) at(id).disabled = !ask;
  at("stop").disabled = !stop;
}

async function open(source) {
  may({});
  at("talk").replaceChildren();
  await model?.dispose();
  [model, chat] = [null, null];
  at("progress").hidden = false;
  try {
    model = await Model.open(source, {
      progress(event) {
        if (event.event === "loading") return void say("It is being loaded.");
        say(`${(event.bytes / 2 ** 20).toFixed(1)} MiB are here.`);
        if (event.total) at("progress").value = event.bytes / event.total;
      },
    });
    chat = await model.chat();
    const { wasm } = await model.memory();
    say(`Open; ${(wasm / 2 ** 20).toFixed(0)} MiB of memory.`);
    may({ ask: true });
    at("question").focus();
  } catch (error) {
    say(error.message);
  } finally {
    at("progress").hidden = true;
  }
}

async function ask(text) {
  shown("user", text);
  const line = shown("assistant", "");
  may({ stop: true });
  try {
    const listener = (piece) => void (line.textContent += piece);
    const { stats } = await chat.send(text, { listener });
    const rate = stats.decodeRate ? `${stats.decodeRate.toFixed(1)} tokens a second, ` : "";
    const { position, capacity } = await chat.cacheState();
    say(`${rate}${position} of ${capacity ?? "?"} positions used.`);
  } catch (error) {
    say(error.message);
  }
  may({ ask: true });
  at("question").focus();
}

at("opening").onsubmit = (event) => {
  event.preventDefault();
  open(new URL(at("address").value, location.href).href);
};
at("file").onchange = ({ target }) => target.files[0] && open(target.files[0]);
at("asking").onsubmit = (event) => {
  event.preventDefault();
  const text = at("question").value.trim();
  if (!text || !chat) return;
  at("question").value = "";
  ask(text);
};
at("question").onkeydown = (event) => {
  if (event.key === "Enter" && !event.shiftKey) {
    event.preventDefault();
    at("asking").requestSubmit();
  }
};
at("stop").onclick = () => chat?.stop();
at("undo").onclick = async () => {
  const asked = await chat.undo();
  if (asked === null) return;
  for (let line = 0; line < 2; line++) at("talk").lastElementChild?.remove();
  at("question").value = asked;
};
