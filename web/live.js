// The live view: reads the stream, keeps the history, draws what is shown.
import {streamLive} from "./api.js";
import {Blocks} from "./blocks.js";
import {drawCurve} from "./curves.js";
import {byId, el, fill, icon, toast} from "./dom.js";
import {History, quantile} from "./history.js";
import {Lanes} from "./lanes.js";
import {buildFrame} from "./live_frame.js";
import {makeLoad} from "./load.js";

const BEHIND = 0.35;      // seconds the picture lags, so that it moves evenly between events
const FRAME = 1000 / 30;  // milliseconds; a quiet engine, or one that takes long to draw, is drawn less often
const QUIET_FRAME = 250;
const ROUNDS = 4;        // of demo requests per connection
const TBT_BUCKET = 0.5;  // seconds

function ms(seconds) {
  if (seconds === null) return "–";
  return seconds >= 1 ? `${seconds.toFixed(2)} s` : `${(seconds * 1000).toFixed(seconds < 0.01 ? 1 : 0)} ms`;
}
const axisMs = (seconds) => (seconds >= 1 ? `${seconds} s` : `${Number((seconds * 1000).toPrecision(2))} ms`);
const percent = (share) => (share === null || share === undefined ? "–" : `${Math.round(share * 100)} %`);
const plain = (value) => String(Number(value.toPrecision(3)));

export class LiveView {
  // `shell.model()` names the model that demo requests go to; `shell.keyWanted()` asks for a key
  // and says whether there is one.
  constructor(root, shell) {
    this.shell = shell;
    this.histories = [];
    this.shown = 0;
    this.span = 10;
    this.clock = -Infinity;  // server time minus local time, as seen with the least delay
    this.paused = null;      // the time at which the picture stands still
    buildFrame(root, {
      load: () => this.toggleLoad(),
      pause: () => this.togglePause(),
      span: (seconds) => this.setSpan(seconds),
      model: (index) => this.showModel(index)
    });
    this.lanes = new Lanes(byId("canvas-lanes"));
    this.blocks = new Blocks(byId("canvas-blocks"));
    this.tips(byId("canvas-lanes"), this.lanes);
    this.tips(byId("canvas-blocks"), this.blocks);
    addEventListener("resize", () => this.draw());
  }

  get history() { return this.histories[this.shown]; }

  // -- the stream
  show() {
    if (this.abort) return;
    this.abort = new AbortController();
    this.run(this.abort.signal);
    this.loop();
  }

  hide() {
    this.abort?.abort();
    this.abort = null;
    cancelAnimationFrame(this.frame);
  }

  async run(signal) {
    for (let wait = 500; !signal.aborted; wait = Math.min(wait * 2, 8000)) {
      try {
        for await (const {event, data} of streamLive(signal)) {
          wait = 500;
          if (event === "hello")
            this.hello(data);
          else if (event === "state")
            this.take(data);
        }
        this.status("The server closed the stream; trying again…", false);
      } catch (error) {
        if (signal.aborted) return;
        this.status(error.status === 401 ? "The server asks for a key." : `${error.message} Trying again…`, false);
        if (error.status === 401 && !(await this.shell.keyWanted())) return;
      }
      await new Promise((resolve) => setTimeout(resolve, wait));
    }
  }

  status(words, good) {
    const line = byId("live-status");
    line.textContent = words;
    line.classList.toggle("good", good);
  }

  hello(hello) {
    this.histories = hello.models.map((model) => new History(model));
    this.shown = Math.min(this.shown, this.histories.length - 1);
    this.clock = -Infinity;
    const select = byId("live-model");
    select.hidden = this.histories.length < 2;
    fill(select, hello.models.map((model, at) => el("option", {value: at, selected: at === this.shown}, model.id)));
  }

  take(state) {
    const history = this.histories[state.model ?? 0];
    if (!history) return;
    const offset = state.t - performance.now() / 1000;
    this.clock = Math.max(offset, this.clock - 0.002);  // forgets slowly, so that a drift is followed
    if (Math.abs(offset - this.clock) > 5) this.clock = offset;
    if (this.paused !== null) return;
    history.take(state);
    if (history !== this.history) return;
    if (state.blocks?.[0]) this.blocks.take(state.blocks[0], state.t);
    this.words(history, state);
  }

  showModel(index) {
    this.shown = index;
    const group = this.history?.state?.blocks?.[0];
    if (group) this.blocks.take(group, -Infinity);
  }

  // -- controls
  setSpan(seconds) {
    this.span = seconds;
    this.draw();
  }

  togglePause() {
    this.paused = this.paused === null ? this.now() : null;
    for (const history of this.histories) history.skip();
    fill(byId("live-pause"), icon(this.paused === null ? "pause" : "play"), this.paused === null ? "Pause" : "Go on");
  }

  async toggleLoad() {
    if (this.loading) {
      this.loading.abort();
      return;
    }
    this.loading = new AbortController();
    fill(byId("live-load"), icon("stop"), "Stop load");
    const reason = await makeLoad(this.history?.model.id ?? this.shell.model(), ROUNDS, this.loading.signal);
    if (reason) toast(`Some demo requests failed: ${reason}`, "error");
    this.loading = null;
    fill(byId("live-load"), icon("bolt"), "Make load");
  }

  tips(canvas, picture) {
    const tip = byId("live-tip");
    canvas.addEventListener("pointermove", (event) => {
      const lines = picture.at(event.offsetX, event.offsetY);
      tip.hidden = lines === null;
      if (lines === null) return;
      fill(tip, lines.map((line, at) => el(at ? "span" : "strong", {}, line)));
      const box = tip.getBoundingClientRect();
      tip.style.left = `${Math.min(event.clientX + 14, innerWidth - box.width - 8)}px`;
      tip.style.top = `${Math.min(event.clientY + 14, innerHeight - box.height - 8)}px`;
    });
    canvas.addEventListener("pointerleave", () => tip.hidden = true);
  }

  // -- drawing
  now() { return this.paused ?? performance.now() / 1000 + this.clock - BEHIND; }

  loop() {
    let last = 0, cost = 0;
    const frame = (time) => {
      const state = this.history?.state;
      const quiet = !state ||
        (state.requests.length === 0 && this.history.between(this.now() - this.span, this.now()).length === 0);
      if (time - last >= Math.max(quiet ? QUIET_FRAME : FRAME, 3 * cost) - 2) {
        last = time;
        this.draw();
        cost = performance.now() - time;
      }
      this.frame = requestAnimationFrame(frame);
    };
    this.frame = requestAnimationFrame(frame);
  }

  draw() {
    if (!this.abort || this.clock === -Infinity) return;
    const history = this.history;
    const now = this.now();
    this.lanes.draw(history, now, this.span);
    this.blocks.draw(history, now);
    this.curves(history, now);
  }

  curves(history, now) {
    const time = {now, span: this.span};
    const of = (name) => history.samples.map((sample) => ({t: sample.t, value: sample[name]}));
    const curve = (id, series, scale) => drawCurve(byId(`canvas-${id}`), series, {...time, ...scale});
    curve("throughput", [{points: of("generated"), area: true}], {least: 10, format: plain});
    curve("ttft", [{points: history.ttft, dots: true}], {least: 0.01, format: axisMs});
    curve("tbt", tbtSeries(history.gaps), {least: 0.005, format: axisMs});
    curve(
      "batch", [{points: of("waiting"), dashed: true, faint: true}, {points: of("sequences"), area: true}],
      {least: 4, format: plain});
    curve(
      "kv", [{points: of("cached"), dashed: true, faint: true}, {points: of("used"), area: true}],
      {least: 0, most: 1, format: percent});
    curve("hits", [{points: of("hits"), area: true}], {least: 0, most: 1, format: percent});
    if (!byId("chart-gpu").hidden)
      curve("gpu", [{points: of("gpu"), area: true}], {least: 0, most: 1, format: percent});
  }

  // -- words
  words(history, state) {
    const {model} = history;
    const sample = history.samples[history.samples.length - 1];
    const recent = state.t - 10;
    const gaps = history.gaps.filter((gap) => gap.t > recent).map((gap) => gap.value);
    const firsts = history.ttft.filter((dot) => dot.t > recent).map((dot) => dot.value);
    const running = state.requests.filter((one) => one.phase === "running").length;
    const group = state.blocks?.[0];
    const facts = [model.id, `${model.scheme} batching, ${model.layout}`, model.device, `step ${state.step}`];
    this.status(facts.filter(Boolean).join(" · "), true);
    const say = (id, value, more = "") => {
      byId(`value-${id}`).textContent = value;
      byId(`more-${id}`).textContent = more ? ` ${more}` : "";
    };
    say(
      "throughput", `${sample.generated.toFixed(sample.generated < 10 ? 1 : 0)} tok/s`,
      sample.prompt >= 1 ? `Prompts: ${sample.prompt.toFixed(0)} tok/s.` : "");
    say("ttft", ms(quantile(firsts, 0.5)), firsts.length > 1 ? `Slowest: ${ms(Math.max(...firsts))}.` : "");
    say("tbt", ms(quantile(gaps, 0.5)), gaps.length > 1 ? `Slowest 1 %: ${ms(quantile(gaps, 0.99))}.` : "");
    say(
      "batch", sample.sequences ? plain(sample.sequences) : "0",
      model.max_sequences ? `At most ${model.max_sequences}.` : "");
    say("kv", percent(sample.used), group ? `${group.total} blocks of ${model.block_size} tokens.` : "");
    say("hits", percent(sample.hits), preemptions(state.counters));
    byId("chart-gpu").hidden = state.gpu === undefined;
    if (state.gpu) say("gpu", percent(state.gpu.utilization), gpuMore(state.gpu));
    byId("lanes-note").textContent = `${running} running, ${state.waiting} waiting`;
    if (group) byId("blocks-note").textContent = this.blocksNote(group);
    this.describe(running, state, sample);
    if (byId("live-rows").closest("details").open) this.rows(state);
  }

  blocksNote({total, used, cached}) {
    const hidden = this.blocks.hidden();
    const free = `${total - used - cached} free${hidden ? ` (${hidden} not drawn)` : ""}`;
    return `${used} in use, ${cached} kept, ${free}`;
  }

  // For those who cannot see the canvases.
  describe(running, state, sample) {
    byId("canvas-lanes").setAttribute("aria-label", `${running} requests running, ${state.waiting} waiting`);
    byId("canvas-blocks").setAttribute("aria-label", `KV memory: ${percent(sample.used)} of the blocks in use`);
    for (const id of ["throughput", "ttft", "tbt", "batch", "kv", "hits"]) {
      const title = byId(`chart-${id}`).querySelector("h3").textContent;
      byId(`canvas-${id}`).setAttribute("aria-label", `${title}: ${byId(`value-${id}`).textContent}`);
    }
  }

  rows(state) {
    fill(byId("live-rows"), state.requests.map((one) => el("tr", {}, cells(one, state.t).map((cell) => el("td", {}, cell)))));
  }
}

function cells(one, t) {
  const age = one.received === undefined ? "–" : `${(t - one.received).toFixed(1)} s`;
  return [`#${one.id}`, one.phase, ...[one.prompt, one.cached, one.generated, one.preemptions].map(String), age];
}

function preemptions(counters = {}) {
  const count = (counters.preemptions_recompute ?? 0) + (counters.preemptions_swap ?? 0);
  return count ? `Preemptions so far: ${count}.` : "No preemptions so far.";
}

function gpuMore({memory_used: used, memory_total: total, power_w: power}) {
  const gib = (bytes) => (bytes / 2 ** 30).toFixed(1);
  const facts = [used && total && `${gib(used)} of ${gib(total)} GiB`, power && `${Math.round(power)} W`];
  return facts.filter(Boolean).join(", ");
}

// Median and 99th percentile of the gaps in each half second.
function tbtSeries(gaps) {
  const buckets = new Map();
  for (const gap of gaps) {
    const at = Math.floor(gap.t / TBT_BUCKET);
    if (!buckets.has(at)) buckets.set(at, []);
    buckets.get(at).push(gap.value);
  }
  const line =
    (share) => [...buckets].map(([at, values]) => ({t: (at + 1) * TBT_BUCKET, value: quantile(values, share)}));
  return [{points: line(0.99), dashed: true, faint: true}, {points: line(0.5), area: true}];
}
