// What the live stream told about one model, for as long as it is shown. docs/live.md has the format. Pure: no DOM.
import {COLOURS} from "./palette.js";

export const KEEP = 65;  // seconds
const SHORT = 0.025;  // steps shorter than this are joined where they follow each other
const LONGEST_JOINED = 0.25;  // so that joined ones still come and go piece by piece
const KEEP_FINE = 4;  // seconds for which single steps are kept
export const FINE = 3;  // they are drawn where no more than this is shown
const REST = 0.2;  // seconds a lane stays empty between two requests
const MOST_DECODED = 32;  // positions: more at once are a preempted request that computes its own again
export const PROMPT = 0, DECODE = 1, FIRST = 2;  // kinds of work

export class History {
  constructor(model) {
    this.model = model;
    this.requests = new Map();
    this.lanes = [];    // when each lane is free again; Infinity: taken
    this.steps = [];    // {t, end, prompt, decode, padding, sequences}
    this.ttft = [];     // {t, value, colour}
    this.gaps = [];     // {t, value}: between the tokens of a request, seconds
    this.samples = [];  // one per state: {t, generated, prompt, running, waiting, used, cached, hits, gpu}
    this.colours = new Array(COLOURS).fill(0);
    this.state = null;
  }

  take(state) {
    for (const step of state.steps ?? []) this.takeStep(step);
    const present = new Set();
    for (const view of state.requests ?? []) {
      present.add(view.id);
      Object.assign(this.request(view.id, view.received ?? state.t), {
        phase: view.phase,
        prompt: view.prompt,
        cached: view.cached,
        generated: view.generated,
        preemptions: view.preemptions,
        seen: state.t
      });
    }
    for (const end of state.ended ?? []) {
      if (this.requests.has(end.id)) this.end(this.requests.get(end.id), end.t, end.reason);
    }
    this.endVanished(present, state);
    this.takeSample(state);
    this.state = state;
    this.forget(state.t - KEEP);
  }

  request(id, received) {
    let request = this.requests.get(id);
    if (!request) {
      request = {
        id,
        received,
        lane: this.takeLane(received),
        colour: this.takeColour(),
        spans: [],
        fine: [],
        phase: "waiting",
        prompt: 0,
        cached: 0,
        generated: 0,
        preemptions: 0,
        marks: []
      };
      this.requests.set(id, request);
    }
    return request;
  }

  takeLane(received) {
    let lane = this.lanes.findIndex((free) => free <= received);
    if (lane < 0) lane = this.lanes.push(0) - 1;
    this.lanes[lane] = Infinity;
    return lane;
  }

  // The colour that the fewest living requests have.
  takeColour() {
    const colour = this.colours.indexOf(Math.min(...this.colours));
    ++this.colours[colour];
    return colour;
  }

  takeStep(step) {
    const end = step.t + step.ms / 1000;
    let prompt = 0, decode = 0, wasted = 0;
    const served = new Set();
    for (const [id, from, to, kind, drafted = 0, accepted = 0] of step.work) {
      const request = this.request(id, step.t);
      const tokens = to - from - (drafted - accepted);
      const single = kind === DECODE && (drafted > 0 || tokens <= MOST_DECODED);
      wasted += drafted - accepted;
      if (single)
        decode += tokens;
      else
        prompt += tokens;
      if (!served.has(id)) this.takeWork(request, step.t, end, tokens, kind === DECODE && !single ? FIRST : kind);
      served.add(id);
    }
    for (const id of step.preempted ?? []) {
      const request = this.requests.get(id);
      if (request) request.marks.push(step.t);
    }
    this.steps.push({t: step.t, end, prompt, decode, padding: (step.padding ?? 0) + wasted, sequences: step.work.length});
  }

  takeWork(request, begin, end, tokens, kind) {
    request.fine.push({begin, end, tokens, kind, steps: 1});
    const last = request.spans[request.spans.length - 1];
    const joins = last && last.kind === DECODE && kind === DECODE && end - begin < SHORT && begin - last.end < SHORT &&
      end - last.begin < LONGEST_JOINED;
    if (joins) {
      last.end = end;
      last.tokens += tokens;
      ++last.steps;
    } else {
      request.spans.push({begin, end, tokens, kind, steps: 1});
    }
    if (kind === PROMPT) return;
    this.takeToken(request, end);
  }

  // request.token is when its last token came; null where that one was missed.
  takeToken(request, t) {
    if (request.token === undefined)
      this.ttft.push({t, value: t - request.received, colour: request.colour});
    else if (request.token !== null)
      this.gaps.push({t, value: t - request.token});
    request.token = t;
  }

  end(request, t, reason) {
    if (request.ended !== undefined) return;
    request.ended = Math.max(t, request.spans[request.spans.length - 1]?.end ?? 0);
    request.reason = reason;
    request.phase = "ended";
    this.lanes[request.lane] = request.ended + REST;
    --this.colours[request.colour];
  }

  // A request that the server no longer mentions is over, whether or not its end was seen. The list of waiting ones may
  // be cut, so these are only given up for good after a while.
  endVanished(present, state) {
    for (const request of this.requests.values()) {
      const last = request.spans[request.spans.length - 1]?.end ?? request.seen ?? request.received;
      const patience = request.spans.length ? 0.5 : 10;
      if (request.ended === undefined && !present.has(request.id) && state.t - last > patience)
        this.end(request, last, "");
    }
  }

  takeSample(state) {
    const counters = state.counters ?? {};
    const group = state.blocks?.[0] ?? {total: 0, used: 0, cached: 0};
    const latest = this.steps[this.steps.length - 1];
    const window = Math.max(1, latest ? 2 * (latest.end - latest.t) : 0);  // at least two steps
    const past = this.samples.findLast((sample) => sample.t <= state.t - window) ?? this.samples[0];
    const since = (name) => Math.max(0, (counters[name] ?? 0) - (past?.counters[name] ?? 0));
    const rate = (name) => (past && state.t > past.t ? since(name) / (state.t - past.t) : 0);
    const recent = this.steps.filter((step) => step.end > state.t - window);
    const sequences = recent.reduce((sum, step) => sum + step.sequences, 0);
    this.samples.push({
      t: state.t,
      counters,
      generated: rate("generated_tokens"),
      prompt: rate("prompt_tokens"),
      sequences: recent.length ? sequences / recent.length : 0,
      waiting: state.waiting ?? 0,
      used: group.total ? group.used / group.total : 0,
      cached: group.total ? group.cached / group.total : 0,
      hits: this.hitShare(counters),
      gpu: state.gpu?.utilization
    });
  }

  // Of the prompt tokens that came in the last ten seconds, the share that the cache had; null where none came.
  hitShare(counters) {
    const past = this.samples.find((sample) => sample.t >= (this.state?.t ?? 0) - 10)?.counters ?? counters;
    const prompt = (counters.prompt_tokens ?? 0) - (past.prompt_tokens ?? 0);
    return prompt > 0 ? ((counters.cached_tokens ?? 0) - (past.cached_tokens ?? 0)) / prompt : null;
  }

  forget(before) {
    for (const [id, request] of this.requests) {
      if (request.ended < before) this.requests.delete(id);
      dropUntil(request.fine, before + KEEP - KEEP_FINE);
    }
    for (const list of [this.steps, this.ttft, this.gaps, this.samples]) dropUntil(list, before);
    while (this.lanes.length && this.lanes[this.lanes.length - 1] < before) this.lanes.pop();
  }

  // States were left out: what the next one brings does not follow what is here.
  skip() {
    for (const request of this.requests.values()) {
      if (request.ended === undefined) request.token = null;
    }
  }

  // Requests whose life touches [from, to], by lane.
  between(from, to) {
    return [...this.requests.values()].filter((one) => one.received <= to && (one.ended ?? Infinity) >= from);
  }
}

function dropUntil(list, before) {
  const keep = list.findIndex((item) => (item.end ?? item.t) >= before);
  list.splice(0, keep < 0 ? list.length : keep);
}

// The value below which a share of the list lies; null where it is empty.
export function quantile(values, share) {
  if (!values.length) return null;
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(share * sorted.length))];
}
