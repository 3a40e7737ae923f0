// The parts of the Lab view that stay: sliders, charts and the words that explain them.
import {el, icon} from "./dom.js";

function slider(id, title, limits, onchange) {
  return el(
    "div", {class: "lab-slider"},
    el("label", {for: `lab-${id}`}, title, el("output", {id: `lab-${id}-value`, for: `lab-${id}`})),
    el("input", {id: `lab-${id}`, type: "range", step: 1, ...limits, oninput: onchange}));
}

function choice(id, title, onchange) {
  return el(
    "div", {class: "lab-slider"}, el("label", {for: `lab-${id}`}, title),
    el("select", {id: `lab-${id}`, class: "select", onchange}));
}

const fact = (id, title) =>
  el("div", {class: "lab-fact"}, el("dt", {}, title), el("dd", {id: `lab-fact-${id}`}, "–"));

const swatch = (kind, words) => el("li", {}, el("span", {class: `swatch dot ${kind}`, "aria-hidden": "true"}), words);

function whatIf(acts) {
  return el(
    "section", {class: "card"},
    el("div", {class: "card-head"}, el("h2", {}, "What if"), el("span", {class: "card-note", id: "lab-machine"})),
    el(
      "p", {class: "explain"},
      "The planner predicts a step from what it must read and multiply. Move a slider and see what changes."),
    el(
      "div", {class: "lab-sliders"}, slider("batch", "Sequences at once", {min: 0, max: 9, value: 0}, acts.ask),
      slider("context", "Tokens of a sequence", {min: 7, max: 12, value: 10}, acts.ask),
      choice("weights", "Weights", acts.ask), choice("device", "Machine", acts.ask)),
    el(
      "dl", {class: "lab-facts"}, fact("tpot", "Time per token"), fact("rate", "Tokens a second"),
      fact("ttft", "Time to first token"), fact("memory", "Weights and KV"), fact("bound", "Limited by"),
      fact("most", "Largest batch")),
    el("p", {class: "explain", id: "lab-words", role: "status"}));
}

function roofline() {
  return el(
    "section", {class: "card"},
    el("div", {class: "card-head"}, el("h2", {}, "Roofline"), el("span", {class: "card-note", id: "lab-engine"})),
    el(
      "p", {class: "explain"},
      "No step can be above the line: on its slope the memory is the limit, on its flat part the multipliers are. ",
      "Decode of few sequences lies far left: all weights are read for little work."),
    el("canvas", {id: "lab-roofline", role: "img", "aria-label": "Roofline"}),
    el(
      "ul", {class: "legend"}, swatch("decode", "decode, as set"), swatch("prefill", "prefill"),
      swatch("part", "single operations of decode"), swatch("engine", "this engine now")));
}

function batches() {
  return el(
    "section", {class: "card"},
    el("div", {class: "card-head"}, el("h2", {}, "Throughput by batch"), el("span", {class: "card-note"}, "tokens/s")),
    el(
      "p", {class: "explain"},
      "Sequences that share a step share the reading of the weights, until multiplying or reading their KV takes longer."),
    el("canvas", {id: "lab-batches", role: "img", "aria-label": "Throughput by batch"}));
}

function schemes(acts) {
  return el(
    "section", {class: "card"},
    el("div", {class: "card-head"}, el("h2", {}, "One load, four schedulers"), el("span", {class: "card-note", id: "lab-trace"})),
    el(
      "p", {class: "explain"},
      "The requests that this engine served in the last minute, or an example where it served none, through the real ",
      "scheduler in the planner's time. Dark is prefill, light is decode, a thin line waits."),
    el(
      "div", {class: "live-controls lab-player"},
      el("button", {id: "lab-play", type: "button", class: "button primary", onclick: acts.play}, icon("play"), "Play"),
      el("input", {
        id: "lab-time",
        type: "range",
        min: 0,
        max: 1000,
        value: 1000,
        disabled: true,
        "aria-label": "Moment shown",
        oninput: acts.seek
      }),
      el("output", {id: "lab-clock", for: "lab-time"})),
    el("div", {class: "lab-schemes", id: "lab-schemes"}));
}

export function buildLab(root, acts) {
  root.append(el(
    "div", {class: "live-inner"},
    el(
      "div", {class: "live-head"},
      el(
        "div", {class: "live-title"}, el("h1", {}, "The lab"),
        el("p", {id: "lab-status", class: "live-status", role: "status"}, "Asking the planner…"))),
    whatIf(acts), el("div", {class: "lab-plots"}, roofline(), batches()), schemes(acts)));
}
