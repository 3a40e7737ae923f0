// The Lab view: what-if sliders fed by the planner, the roofline with the running engine on it, and a recorded load
// played under several schedulers.
import {askPlan, playSchemes, streamLive} from "./api.js";
import {byId, el, fill, icon} from "./dom.js";
import {History} from "./history.js";
import {buildLab} from "./lab_frame.js";
import {drawBatches, drawPlayed, drawRoofline, short} from "./lab_plots.js";

const MOST_REQUESTS = 48;    // of a played load: more lanes cannot be told apart
const MOST_TOKENS = 24_000;  // prompts and answers of it together
const RECENT = 5;            // seconds that the engine's point is the mean of
const POINT_EVERY = 1000;    // milliseconds between questions about it
const PLAYED_IN = 8000;      // milliseconds

function time(seconds) {
  if (seconds >= 1) return `${Number(seconds.toPrecision(3))} s`;
  if (seconds >= 1e-3) return `${Number((seconds * 1e3).toPrecision(3))} ms`;
  return `${Number((seconds * 1e6).toPrecision(3))} µs`;
}

// A load for engines that have served nothing: short and long prompts and answers, mixed.
function example(maxSeqs) {
  const sizes = [[40, 16], [200, 90], [90, 8], [30, 120], [400, 40], [60, 64], [120, 24], [25, 48]];
  const count = Math.min(MOST_REQUESTS, Math.max(24, 2 * maxSeqs));
  return Array.from({length: count}, (_, at) => [0.05 * at, ...sizes[at % sizes.length]]);
}

// The requests of a history as rows of a trace, from the first one's time on.
export function recorded(history) {
  const rows = [];
  let tokens = 0;
  const known = [...(history?.requests.values() ?? [])].filter((one) => one.prompt > 0 && one.generated > 0);
  for (const one of known.sort((a, b) => a.received - b.received).slice(-MOST_REQUESTS)) {
    tokens += one.prompt + one.generated;
    if (tokens > MOST_TOKENS) break;
    rows.push([Math.max(0, one.received - known[0].received), one.prompt, one.generated]);
  }
  const first = rows[0]?.[0] ?? 0;
  return rows.map(([at, ...sizes]) => [at - first, ...sizes]);
}

// Mean batch, context and step time of the decode steps of the last seconds; null where there were none.
export function operatingPoint(history, now) {
  const steps = history.steps.filter((step) => step.end > now - RECENT && step.decode > 0 && step.prompt === 0);
  const running = (history.state?.requests ?? []).filter((one) => one.phase === "running");
  if (!steps.length || !running.length) return null;
  const mean = (list, value) => list.reduce((sum, one) => sum + value(one), 0) / list.length;
  return {
    batch: Math.max(1, Math.round(mean(steps, (step) => step.sequences))),
    context: Math.max(1, Math.round(mean(running, (one) => one.prompt + one.generated))),
    seconds: mean(steps, (step) => step.end - step.t)
  };
}

const point = (name, kind, phase, seconds = phase.seconds) =>
  ({name, kind, intensity: phase.operations / phase.bytes, rate: phase.operations / seconds});

export class LabView {
  // `shell.model()` names the model; `shell.keyWanted()` asks for a key and says whether there is one.
  constructor(root, shell) {
    this.shell = shell;
    buildLab(root, {ask: () => this.ask(), play: () => this.play(), seek: () => this.seek()});
    addEventListener("resize", () => this.draw());
  }

  // -- life
  show() {
    if (this.abort) return;
    this.abort = new AbortController();
    this.watch(this.abort.signal);
    this.ask();
  }

  hide() {
    this.abort?.abort();
    this.abort = null;
    cancelAnimationFrame(this.frame);
  }

  status(words, good) {
    byId("lab-status").textContent = words;
    byId("lab-status").classList.toggle("good", good);
  }

  // -- the running engine
  async watch(signal) {
    while (!signal.aborted) {
      try {
        for await (const {event, data} of streamLive(signal)) this.take(event, data);
      } catch (error) {
        if (signal.aborted) return;
        if (error.status === 401 && !(await this.shell.keyWanted())) return;
      }
      await new Promise((resolve) => setTimeout(resolve, 1000));
    }
  }

  take(event, data) {
    if (event === "hello") {
      this.histories = data.models.map((model) => new History(model));
      return;
    }
    const history = this.histories?.[data.model ?? 0];
    history?.take(data);
    if (history && history === this.history()) this.place(history, data.t);
  }

  // Not known before the list of models is there: the first is then meant.
  model() { return this.shell.model() || undefined; }

  history() { return this.histories?.find((one) => one.model.id === this.shell.model()) ?? this.histories?.[0]; }

  async place(history, now) {
    if (this.placing || performance.now() - (this.placed ?? -Infinity) < POINT_EVERY) return;
    const engine = operatingPoint(history, now);
    this.placed = performance.now();
    this.placing = true;
    try {
      const plan = engine && await askPlan({model: this.model(), batch: engine.batch, context: engine.context});
      this.engine = plan && {...point("this engine now", "engine", plan.decode, engine.seconds), ...engine};
      byId("lab-engine").textContent = engine
        ? `now: ${engine.batch} at once, ${engine.context} tokens each, ${time(engine.seconds)} a step, ` +
          `predicted ${time(plan.decode.seconds)}`
        : "the engine is idle";
      this.draw();
    } catch {
      // The sliders say what is wrong.
    }
    this.placing = false;
  }

  // -- the sliders
  question() {
    const batch = 2 ** Number(byId("lab-batch").value), context = 2 ** Number(byId("lab-context").value);
    byId("lab-batch-value").textContent = String(batch);
    byId("lab-context-value").textContent = String(context);
    const chosen = {weights: byId("lab-weights").value, device: byId("lab-device").value};
    return {model: this.model(), batch, context, ...Object.fromEntries(Object.entries(chosen).filter(([, value]) => value))};
  }

  // Only the newest answer counts.
  async ask() {
    const number = this.asked = (this.asked ?? 0) + 1;
    try {
      const plan = await askPlan(this.question());
      if (number !== this.asked) return;
      this.plan = plan;
      this.offer(plan.choices);
      this.words(plan);
      this.draw();
    } catch (error) {
      if (number !== this.asked) return;
      this.status(error.message, false);
      if (error.status === 401 && (await this.shell.keyWanted())) this.ask();
    }
  }

  offer({weights, stored, devices, context}) {
    if (this.offered) return;
    this.offered = true;
    const options = (list, first) => [el("option", {value: ""}, first), ...list.map((one) => el("option", {value: one}, one))];
    fill(byId("lab-weights"), options(weights, `${stored} (as stored)`));
    fill(byId("lab-device"), options(devices, "as it is served"));
    byId("lab-context").max = Math.max(7, Math.floor(Math.log2(context)));
  }

  words({machine, model, cell}) {
    this.status(`${model.name} · ${model.weights} weights`, true);
    byId("lab-machine").textContent = machine.measured ? machine.name : `${machine.name}: published figures`;
    const say = (id, words) => byId(`lab-fact-${id}`).textContent = words;
    say("tpot", time(cell.tpot_s));
    say("rate", Number(cell.tokens_per_s.toPrecision(3)).toLocaleString("en"));
    say("ttft", time(cell.ttft_s));
    say("memory", `${short(model.weights_bytes)}B + ${short(cell.kv_bytes)}B`);
    say("bound", cell.bound === "memory" ? "memory" : "multiplying");
    say("most", cell.largest_batch.toLocaleString("en"));
    byId("lab-words").textContent = cell.fits
      ? `${Math.round(cell.floor_s / cell.tpot_s * 100)}\u00a0% of a token's time is what the machine's limits demand. ` +
        (cell.compute_bound_from ? `From ${cell.compute_bound_from} sequences on, multiplying takes longer than reading.`
                                 : "Reading takes longer than multiplying at every batch of this context.")
      : `This does not fit: ${cell.largest_batch} sequences of ${cell.context} tokens do.`;
    byId("lab-words").classList.toggle("lab-warning", !cell.fits);
  }

  draw() {
    if (!this.abort || !this.plan) return;
    const {machine, decode, prefill, curve, cell} = this.plan;
    const points = decode.parts.map((part) => point(part.name, "part", part));
    points.push(point("prefill", "prefill", prefill), point("decode", "decode", decode));
    if (this.engine && !byId("lab-device").value && !byId("lab-weights").value) points.push(this.engine);
    drawRoofline(byId("lab-roofline"), {read: machine.read_bytes_per_s, multiply: machine.multiply_ops_per_s}, points);
    drawBatches(byId("lab-batches"), curve, cell);
    const label = points.slice(-3).map((one) => `${one.name}: ${short(one.rate)}op/s at ${one.intensity.toFixed(1)} per byte`);
    byId("lab-roofline").setAttribute("aria-label", `Roofline. ${label.join("; ")}`);
    this.drawSchemes();
  }

  // -- the schemes
  async play() {
    if (this.playing) return this.pause();
    if (!this.played || this.moment >= 1) {
      const rows = recorded(this.history());
      const own = rows.length > 1;
      try {
        this.played =
          await playSchemes({model: this.model(), requests: own ? rows : example(this.plan?.choices.max_seqs ?? 16)});
      } catch (error) {
        byId("lab-trace").textContent = error.message;
        return;
      }
      const count = `${this.played.requests.length} requests`;
      byId("lab-trace").textContent = own ? `${count} of this engine` : `${count}, an example`;
      this.buildSchemes();
      this.moment = 0;
    }
    this.run();
  }

  buildSchemes() {
    const {schemes} = this.played;
    this.end = Math.max(...schemes.map((one) => one.seconds), ...this.played.requests.map(([at]) => at));
    byId("lab-time").disabled = false;
    fill(byId("lab-schemes"), schemes.map((one) => el(
      "div", {class: "lab-scheme"}, el("h3", {}, one.name), el("p", {class: "explain"}, one.about),
      el("canvas", {
        id: `lab-lanes-${one.name}`,
        role: "img",
        "aria-label": `${one.name}: all done after ${time(one.seconds)}`
      }),
      el(
        "p", {class: "numbers"},
        `done after ${time(one.seconds)} · ${Math.round(one.tokens_per_s)} tokens/s · first token ${time(one.ttft_p50_s)}, `,
        `slowest ${time(one.ttft_p99_s)} · ${Math.round(one.padding * 100)}\u00a0%\u00a0padding`))));
  }

  run() {
    this.playing = true;
    fill(byId("lab-play"), icon("pause"), "Pause");
    let last = performance.now();
    const frame = (now) => {
      if (!this.playing) return;
      this.moment = Math.min(1, this.moment + Math.max(0, now - last) / PLAYED_IN);
      last = now;
      this.drawSchemes();
      if (this.moment >= 1)
        this.pause();
      else
        this.frame = requestAnimationFrame(frame);
    };
    this.frame = requestAnimationFrame(frame);
  }

  pause() {
    this.playing = false;
    cancelAnimationFrame(this.frame);
    fill(byId("lab-play"), icon("play"), "Play");
  }

  seek() {
    this.pause();
    this.moment = Number(byId("lab-time").value) / 1000;
    this.drawSchemes();
  }

  drawSchemes() {
    if (!this.played) return;
    const now = this.moment * this.end;
    byId("lab-time").value = String(Math.round(this.moment * 1000));
    byId("lab-clock").textContent = `${time(now)} of ${time(this.end)}`;
    for (const one of this.played.schemes)
      drawPlayed(byId(`lab-lanes-${one.name}`), one, this.played.requests, {now, end: this.end});
  }
}
