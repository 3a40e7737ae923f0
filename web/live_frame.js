// The parts of the live view that stay: heads, charts, legends, and the words that explain them.
import {el, icon} from "./dom.js";

export const SPANS = [[2, "2 s"], [10, "10 s"], [30, "30 s"], [60, "60 s"]];

// id, title, explanation
const CHARTS = [
  ["throughput", "Throughput", "Tokens generated per second, all requests together."],
  ["ttft", "Time to first token", "One dot per request: from its arrival to its first token."],
  ["tbt", "Time between tokens", "The gap a reader feels: the median; dashed, the slowest 1 %."],
  ["batch", "Batch size", "Sequences that share a step; dashed: requests that wait."],
  ["kv", "KV memory", "Share of the blocks in use; dashed: kept for their content."],
  ["hits", "Prefix cache", "Share of prompt tokens that did not have to be computed."],
  ["gpu", "GPU", "Share of the time in which the GPU was busy."],
];

function chart([id, title, explanation]) {
  return el(
    "section", {class: "card chart", id: `chart-${id}`, hidden: id === "gpu"},
    el("div", {class: "chart-head"}, el("h3", {}, title), el("span", {class: "chart-value", id: `value-${id}`}, "–")),
    el("canvas", {id: `canvas-${id}`, role: "img", "aria-label": title}),
    el("p", {class: "explain"}, explanation, el("span", {class: "chart-more", id: `more-${id}`})));
}

const swatch = (kind, words) => el("li", {}, el("span", {class: `swatch ${kind}`, "aria-hidden": "true"}), words);

function lanesCard() {
  return el(
    "section", {class: "card lanes"},
    el(
      "div", {class: "card-head"}, el("h2", {}, "Requests over time"),
      el("span", {class: "card-note", id: "lanes-note"})),
    el(
      "p", {class: "explain"},
      "Every lane is a request. In each step the device runs one token of every request that is ",
      "decoding, together with pieces of new prompts: requests join and leave at any step, nobody waits for a batch to end."),
    el("canvas", {id: "canvas-lanes", role: "img", "aria-label": "Requests over time"}),
    el(
      "ul", {class: "legend"}, swatch("waits", "waits"), swatch("prefill", "prefill: a piece of the prompt"),
      swatch("decode", "decode: one token a step, or a few by drafts"), swatch("idle", "has a place, not in this step"),
      swatch("done", "ends"), swatch("preempted", "preempted: gave its memory to others")));
}

function blocksCard() {
  return el(
    "section", {class: "card blocks"},
    el(
      "div", {class: "card-head"}, el("h2", {}, "KV memory, block by block"),
      el("span", {class: "card-note", id: "blocks-note"})),
    el(
      "p", {class: "explain"},
      "What attention has to remember of every token, cut into blocks. A request takes a block ",
      "when it needs one; prompts that begin alike share theirs."),
    el("canvas", {id: "canvas-blocks", role: "img", "aria-label": "KV blocks by owner"}),
    el(
      "ul", {class: "legend"}, swatch("owned", "held by a request, in its colour"), swatch("shared", "shared prefix"),
      swatch("kept", "kept for its content"), swatch("free", "free")));
}

function readingCard() {
  const item = (title, words) => el("li", {}, el("strong", {}, title), ` ${words}`);
  return el(
    "section", {class: "card reading"}, el("div", {class: "card-head"}, el("h2", {}, "How to read this")),
    el(
      "ol", {},
      item("Press “Make load”", "and watch lanes appear: dotted while they wait, solid while the prompt is read."),
      item(
        "Reading is one big step, writing is many small ones.",
        "Prefill computes hundreds of tokens at once; decode adds one a step."),
      item(
        "A full batch costs little more than one request:",
        "the weights are read once a step for all. That is why throughput climbs while the gap between tokens hardly grows."),
      item("Long prompts come in pieces,", "so that those who are reading an answer do not see it stall."),
      item(
        "Memory is the limit.",
        "When no block is free, the request served longest ago gives way, and comes back later.")));
}

// Everything, as children of `root`. `acts`: {load, pause, span, model}.
export function buildFrame(root, acts) {
  const spans = el(
    "select", {
      id: "live-span",
      class: "select",
      "aria-label": "Time shown",
      onchange: (event) => acts.span(Number(event.target.value))
    },
    SPANS.map(([seconds, label]) => el("option", {value: seconds, selected: seconds === 10}, label)));
  root.append(el(
    "div", {class: "live-inner"},
    el(
      "div", {class: "live-head"},
      el(
        "div", {class: "live-title"}, el("h1", {}, "The engine, live"),
        el("p", {id: "live-status", class: "live-status", role: "status"}, "Connecting…")),
      el(
        "div", {class: "live-controls"}, el("select", {
          id: "live-model",
          class: "select",
          "aria-label": "Model shown",
          hidden: true,
          onchange: (event) => acts.model(Number(event.target.value))
        }),
        spans,
        el("button", {id: "live-pause", type: "button", class: "button", onclick: acts.pause}, icon("pause"), "Pause"),
        el(
          "button", {id: "live-load", type: "button", class: "button primary", onclick: acts.load}, icon("bolt"),
          "Make load"))),
    lanesCard(), el("div", {class: "charts"}, CHARTS.map(chart)),
    el("div", {class: "live-low"}, blocksCard(), readingCard()),
    el(
      "details", {class: "card table-card"}, el("summary", {}, "Requests as a table"),
      el(
        "div", {class: "table"},
        el(
          "table", {},
          el(
            "thead", {},
            el(
              "tr", {},
              ["Request", "State", "Prompt", "From cache", "Generated", "Preempted", "Age"].map(
                (name) => el("th", {scope: "col"}, name)))),
          el("tbody", {id: "live-rows"})))),
    el("div", {id: "live-tip", class: "tip", hidden: true})));
}
