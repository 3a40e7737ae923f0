// The parameters of the next answer. An empty field is not sent: the server's default for the model holds, which it shows.
import {ask, byId, copyFrom, el, fill, icon, iconButton} from "./dom.js";
import {savedKey, saveKey} from "./api.js";
import {setSetting, setting} from "./store.js";

// name, label, what it does, and the limits of a number
const NUMBERS = [
  ["temperature", "Temperature", "0 always takes the likeliest token", {min: 0, max: 2, step: 0.05}],
  ["top_p", "Top-p", "smallest set of tokens with this probability", {min: 0, max: 1, step: 0.01}],
  ["top_k", "Top-k", "only the k likeliest tokens", {min: 0, max: 1000000, step: 1}],
  ["min_p", "Min-p", "share of the likeliest token's probability", {min: 0, max: 1, step: 0.01}],
  ["repetition_penalty", "Repetition penalty", "above 1: repeats become unlikely", {min: 0.01, max: 10, step: 0.01}],
  ["presence_penalty", "Presence penalty", "above 0: new words become likelier", {min: -2, max: 2, step: 0.05}],
  ["max_tokens", "Max tokens", "longest answer", {min: 1, max: 10000000, step: 1}],
  ["seed", "Seed", "same seed, same answer", {min: 0, max: 9007199254740991, step: 1}],
];

let values = {};

// The members of a request that the fields say.
export function requestParameters() {
  const parameters = {};
  for (const [name] of NUMBERS) {
    if (values[name] !== undefined && values[name] !== "") parameters[name] = Number(values[name]);
  }
  const stops = (values.stop ?? "").split("\n").filter((line) => line !== "").map(unescape);
  if (stops.length) parameters.stop = stops;
  const tools = parsedTools(values.tools ?? "");
  if (tools?.length) parameters.tools = tools;
  const schema = parsedSchema(values.schema ?? "");
  if (schema) parameters.response_format = {type: "json_schema", json_schema: {name: "answer", schema}};
  return parameters;
}

// A stop string is one line, so "\n" and "\t" stand for what they mean elsewhere.
const unescape = (line) => line.replaceAll("\\n", "\n").replaceAll("\\t", "\t");

// The list of tools that a text holds, or null where it is none.
function parsedTools(text) {
  if (text.trim() === "") return [];
  try {
    const tools = JSON.parse(text);
    return Array.isArray(tools) ? tools : null;
  } catch {
    return null;
  }
}

// The schema that a text holds; undefined where it is empty, null where it is none.
function parsedSchema(text) {
  if (text.trim() === "") return undefined;
  try {
    const schema = JSON.parse(text);
    return schema !== null && typeof schema === "object" && !Array.isArray(schema) ? schema : null;
  } catch {
    return null;
  }
}

function keep(name, value) {
  values[name] = value;
  setSetting("parameters", values);
  byId("open-parameters").classList.toggle("changed", Object.values(values).some((one) => one !== ""));
}

function numberField(chat, [name, label, hint, limits]) {
  const input = el("input", {
    id: `parameter-${name}`,
    class: "field",
    type: "number",
    placeholder: String(chat.defaults()[name] ?? "default"),
    inputmode: "decimal",
    "aria-describedby": `hint-${name}`,
    ...limits,
    oninput: () => {
      const valid = input.validity.valid || input.validity.stepMismatch;
      input.setAttribute("aria-invalid", String(!valid));
      keep(name, valid ? input.value : "");
    }
  });
  input.value = values[name] ?? "";
  return el("div", {class: "parameter"}, el("label", {for: input.id
            }, label), input, el("span", {id: `hint-${name}`, class: "hint"}, hint));
}

function textField(id, label, hint, rows, value, oninput) {
  const area =
    el("textarea", {id, class: "field", rows, "aria-describedby": `hint-${id}`, oninput: () => oninput(area.value)});
  area.value = value;
  return el("div", {class: "parameter whole"}, el("label", {for: id
            }, label), area, el("span", {id: `hint-${id}`, class: "hint"}, hint));
}

let asking = null;

// Asks for the key, once, however many want it; true where one was given.
export function askForKey(reason) {
  asking ??= askOnce(reason).finally(() => asking = null);
  return asking;
}

async function askOnce(reason) {
  const key = await ask({
    title: "API key",
    text: reason,
    confirm: "Use this key",
    field: {type: "password", label: "API key", value: savedKey()}
  });
  if (key === null) return false;
  saveKey(key.trim());
  return true;
}

// The drawer. `chat` gives and takes the system prompt of the conversation, knows what the server samples with where a
// field is empty, and shows a request as a curl command.
export function setUpParameters(chat) {
  values = setting("parameters", {});
  const drawer = byId("parameters");
  const opener = byId("open-parameters");
  const show = (open) => {
    if (open) draw(drawer, chat, () => show(false));
    drawer.hidden = !open;
    document.body.classList.toggle("with-drawer", open);
    opener.setAttribute("aria-expanded", String(open));
    if (open)
      drawer.querySelector("textarea").focus();
    else
      opener.focus();
  };
  opener.addEventListener("click", () => show(drawer.hidden));
  drawer.addEventListener("keydown", (event) => {
    if (event.key === "Escape") show(false);
  });
  keep("stop", values.stop ?? "");
  return {refresh: () => !drawer.hidden && draw(drawer, chat, () => show(false))};
}

function draw(drawer, chat, close) {
  const redraw = () => draw(drawer, chat, close);
  const reset = el(
    "button", {
      type: "button",
      class: "button small",
      onclick: () => {
        for (const name of Object.keys(values)) keep(name, "");
        redraw();
      }
    },
    "Use defaults");
  const curl = el(
    "button", {type: "button", class: "button small", onclick: () => copyFrom(curl, chat.asCurl())}, icon("copy"),
    "Copy as curl");
  const key = el(
    "button", {
      type: "button",
      class: "button small",
      onclick: async () => {
        if (await askForKey("Sent with every request, kept in this browser only. Empty: no key.")) chat.keyChanged();
      }
    },
    savedKey() ? "Change API key" : "Set API key");
  fill(
    drawer,
    el("div", {class: "drawer-head"}, el("h2", {}, "Parameters"), iconButton("close", "Close parameters", close)),
    textField(
      "system", "System prompt", "Of this conversation; where it is empty, the model may have its own.", 4, chat.system(),
      (text) => chat.setSystem(text)),
    el("div", {class: "parameter-grid"}, NUMBERS.map((row) => numberField(chat, row))),
    textField(
      "parameter-stop", "Stop strings", "One a line; \\n is a line break. The answer ends before them.", 2,
      values.stop ?? "", (text) => keep("stop", text)),
    textField(
      "parameter-tools", "Tools", "A JSON list of functions, as OpenAI's API has it. Calls are shown, not run.", 4,
      values.tools ?? "", (text) => {
        byId("parameter-tools").setAttribute("aria-invalid", String(parsedTools(text) === null));
        keep("tools", text);
      }),
    textField(
      "parameter-schema", "JSON schema", "The answer is JSON that fits it.", 4, values.schema ?? "", (text) => {
        byId("parameter-schema").setAttribute("aria-invalid", String(parsedSchema(text) === null));
        keep("schema", text);
      }),
    el("div", {class: "drawer-actions"}, reset, curl, key));
}
