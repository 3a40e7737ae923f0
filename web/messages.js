// Messages as nodes. What a message can do is given as `acts`: {regenerate, edit, choose, stop}.
import {copyFrom, el, fill, icon, iconButton} from "./dom.js";
import {showMarkdown} from "./markdown.js";
import {pictureBox} from "./pictures.js";

const seconds = (ms) => (ms >= 1000 ? `${(ms / 1000).toFixed(2)} s` : `${Math.round(ms)} ms`);

// "37 tokens · 41.2 tokens/s · first token after 210 ms"
export function statsLine(node) {
  const stats = node.stats ?? {};
  const parts = [];
  if (stats.tokens) parts.push(`${stats.tokens} ${stats.tokens === 1 ? "token" : "tokens"}`);
  if (stats.perSecond) parts.push(`${stats.perSecond.toFixed(1)} tokens/s`);
  if (stats.ttft !== undefined) parts.push(`first token after ${seconds(stats.ttft)}`);
  if (stats.cached)
    parts.push(`${stats.cached} of ${stats.prompt} prompt tokens from the cache`);
  else if (stats.prompt)
    parts.push(`${stats.prompt} prompt tokens`);
  if (node.stopped) parts.push("stopped");
  if (stats.atLimit) parts.push("ended at the token limit");
  return parts.join(" · ");
}

function branches(node, siblings, acts) {
  if (siblings.length < 2) return null;
  const at = siblings.indexOf(node);
  const step = (by, name, label) => iconButton(
    name, label, () => acts.choose(siblings[at + by]), {disabled: at + by < 0 || at + by >= siblings.length});
  return el(
    "span", {class: "branches"}, step(-1, "left", "Previous version"),
    el("span", {"aria-label": `Version ${at + 1} of ${siblings.length}`}, `${at + 1}/${siblings.length}`),
    step(1, "right", "Next version"));
}

function copyButton(node) {
  const button = iconButton("copy", "Copy", () => copyFrom(button, node.content));
  return button;
}

function userMessage(node, siblings, acts) {
  const pictures = node.images && el("div", {class: "pictures"}, node.images.map(pictureBox));
  const bubble = el("div", {class: "bubble"}, pictures, node.content);
  const box = el(
    "article", {class: "message user", "aria-label": "You", "data-node": node.id}, bubble,
    el(
      "div", {class: "message-foot"}, branches(node, siblings, acts), copyButton(node),
      iconButton("edit", "Edit and ask again", () => startEdit(box, node, siblings, acts))));
  return box;
}

export function startEdit(box, node, siblings, acts) {
  const area = el("textarea", {
    class: "field",
    rows: Math.min(12, node.content.split("\n").length + 1),
    "aria-label": "Edit message",
    onkeydown: (event) => {
      if (event.key === "Escape") cancel();
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) send(event);
    }
  });
  area.value = node.content;
  const cancel = () => box.replaceWith(userMessage(node, siblings, acts));
  const send = (event) => {
    event.preventDefault();
    if (area.value.trim() !== "") acts.edit(node, area.value);
  };
  fill(
    box,
    el(
      "form", {class: "edit", onsubmit: send}, area,
      el(
        "div", {class: "edit-actions"},
        el("button", {type: "button", class: "button small", onclick: cancel}, "Cancel"),
        el("button", {type: "submit", class: "button primary small"}, "Ask again"))));
  area.focus();
  area.setSelectionRange(area.value.length, area.value.length);
}

function reasoningBox(node) {
  if (!node.reasoning) return null;
  const text = el("div", {class: "reasoning-text"});
  text.textContent = node.reasoning;
  return el("details", {class: "reasoning"}, el("summary", {}, "Reasoning"), text);
}

// JSON on lines of its own, or null where the text is none.
export function prettyJson(text) {
  try {
    return JSON.stringify(JSON.parse(text), null, 2);
  } catch {
    return null;
  }
}

function callBox(call) {
  return el(
    "details", {class: "call", open: true}, el("summary", {}, "Calls ", el("code", {}, call.name)),
    el("pre", {tabindex: "0"}, el("code", {}, prettyJson(call.arguments) ?? call.arguments)));
}

function showCalls(box, node) { fill(box, (node.calls ?? []).map(callBox)); }

// An answer that is JSON as a whole is shown as such once it is complete.
function showContent(box, node, running) {
  const isJson = !running && /^\s*[[{]/.test(node.content);
  const pretty = isJson ? prettyJson(node.content) : null;
  showMarkdown(box, pretty === null ? node.content : "```json\n" + pretty + "\n```");
}

function errorBox(node, acts) {
  if (!node.error) return null;
  return el(
    "div", {class: "error-box", role: "alert"}, el("p", {}, node.error),
    el(
      "button", {type: "button", class: "button small", onclick: () => acts.regenerate(node)}, icon("again"),
      "Try again"));
}

function assistantMessage(node, siblings, acts, running) {
  const body = el("div", {class: "markdown"});
  showContent(body, node, running);
  const calls = el("div", {class: "calls"});
  showCalls(calls, node);
  const foot = running ? el("div", {class: "message-foot shown"}, el("span", {class: "stats"}, "")) :
                         el(
                           "div", {class: "message-foot shown"}, branches(node, siblings, acts), copyButton(node),
                           iconButton("again", "Another answer", () => acts.regenerate(node)),
                           el("span", {class: "stats"}, statsLine(node)));
  const waiting = running && node.content === "" && !node.calls &&
    el("div", {class: "waiting", "aria-label": "Waiting for the first token"}, el("i"), el("i"), el("i"));
  return el(
    "article", {
      class: running ? "message assistant running" : "message assistant",
      "aria-label": node.model ?? "Model",
      "data-node": node.id,
      "aria-busy": String(running)
    },
    el("div", {class: "message-head"}, node.model ?? "Model"), reasoningBox(node), body, calls, waiting, errorBox(node, acts),
    foot);
}

export function messageNode({node, siblings}, acts, running) {
  return node.role === "user" ? userMessage(node, siblings, acts) : assistantMessage(node, siblings, acts, running);
}

// Brings the node of a running answer up to date.
export function updateRunning(box, node) {
  showMarkdown(box.querySelector(".markdown"), node.content);
  showCalls(box.querySelector(".calls"), node);
  if (node.content !== "" || node.calls) box.querySelector(".waiting")?.remove();
  box.querySelector(".stats").textContent = statsLine(node);
  if (!node.reasoning) return;
  const present = box.querySelector(".reasoning-text");
  if (present)
    present.textContent = node.reasoning;
  else
    box.querySelector(".markdown").before(reasoningBox(node));
}

const IDEAS = [
  "Explain how a canal lock works, step by step.",
  "Write a short poem about rain on a tin roof.",
  "Give me a table of three planets with radius and moons.",
  "Write a Python function that checks whether a word is a palindrome.",
];

// What an empty conversation shows.
export function welcome(model, ask) {
  return el(
    "div", {class: "welcome"}, el("img", {src: "icon.svg", width: 56, height: 56, alt: ""}),
    el("h1", {}, "What shall we talk about?"),
    el(
      "p", {},
      model ? `${model} is ready. Conversations stay in this browser.` : "Conversations stay in this browser."),
    el(
      "div", {class: "ideas"},
      IDEAS.map((idea) => el("button", {type: "button", class: "idea", onclick: () => ask(idea)}, idea))));
}
