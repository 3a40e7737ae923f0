// Requests as lanes over time. Above them, what each step of the device held.
import {bar, hatch, prepare, text, theme} from "./palette.js";
import {DECODE, FINE} from "./history.js";

const STRIP = 58;  // height of the picture of the steps
const GAP = 12;
const AXIS = 22;
const FEWEST_LANES = 6, MOST_LANES = 40;
const LEFT = 10, RIGHT = 10;
const LABEL = 30;

const laneHeight = (lanes) => (lanes <= 14 ? 22 : lanes <= 28 ? 16 : 11);

export class Lanes {
  constructor(canvas) {
    this.canvas = canvas;
    this.count = FEWEST_LANES;
    this.needed = 0;  // when so many lanes were last needed
    this.shown = [];
  }

  // As many lanes as there are requests to show. The picture grows at once and shrinks late, so that it does not jump.
  fit(now) {
    const wanted = Math.min(MOST_LANES, Math.max(FEWEST_LANES, ...this.shown.map((one) => one.lane + 1)));
    if (wanted >= this.count || now < this.needed || now - this.needed > 3) {
      this.count = wanted;
      this.needed = now;
    }
    this.tall = laneHeight(this.count);
    const height = `${STRIP + GAP + AXIS + this.count * this.tall}px`;
    if (this.canvas.style.height !== height) this.canvas.style.height = height;
  }

  // Draws the time [now - span, now].
  draw(history, now, span) {
    this.shown = history ? history.between(now - span, now).filter((one) => one.lane < MOST_LANES) : [];
    this.fit(now);
    const {context, width, height} = prepare(this.canvas);
    const colours = theme();
    this.scale = {now, span, from: LEFT, width: width - LEFT - RIGHT};
    const view = {context, colours, width, height, x: (t) => LEFT + (1 - (now - t) / span) * (width - LEFT - RIGHT)};
    this.axis(view, now, span);
    if (!history) return;
    context.save();
    context.beginPath();
    context.rect(LEFT, 0, width - LEFT - RIGHT, height);
    context.clip();
    this.strip(view, history, now, span);
    this.detail = span <= FINE ? "fine" : "spans";
    for (const request of this.shown) this.lane(view, request, now);
    context.restore();
    if (this.shown.length === 0) this.invite(view);
  }

  invite({context, colours, width, height}) {
    const words = "Nothing to do. Press “Make load”, or ask something in the chat.";
    text(context, words, width / 2, height / 2, {colour: colours.muted, font: colours.font, size: 13, align: "center"});
  }

  axis({context, colours, width, height, x}, now, span) {
    const every = span <= 3 ? 0.5 : span <= 12 ? 2 : span <= 35 ? 5 : 10;
    context.strokeStyle = colours.line;
    context.lineWidth = 1;
    for (let back = 0; back <= span + 1e-6; back += every) {
      const at = Math.round(x(now - back)) + 0.5;
      context.beginPath();
      context.moveTo(at, 0);
      context.lineTo(at, height - AXIS + 4);
      context.stroke();
      const edge = back === 0 ? "right" : back > span - every / 2 ? "left" : "center";
      text(
        context, back === 0 ? "now" : `−${Number(back.toFixed(1))} s`, edge === "right" ? width - RIGHT : at,
        height - 9, {colour: colours.faint, font: colours.font, align: edge});
    }
  }

  // One bar per step, as high as the root of its tokens; steps thinner than a pixel share one.
  strip({context, colours, x}, history, now, span) {
    const steps = history.steps.filter((step) => step.end > now - span && step.t < now);
    const tokens = (step) => step.prompt + step.decode + step.padding;
    const most = Math.max(16, ...steps.map(tokens));
    let last = -1;
    for (const step of steps) {
      const left = Math.max(x(step.t), last);
      const wide = Math.max(x(step.end) - left - (x(step.end) - x(step.t) > 3 ? 1 : 0), 0.6);
      last = left + wide;
      const unit = Math.sqrt(tokens(step) / most) * (STRIP - 18) / Math.max(1, tokens(step));
      const [decode, prompt, padding] = [step.decode * unit, step.prompt * unit, step.padding * unit];
      context.fillStyle = colours.accent;
      context.globalAlpha = 0.45;
      context.fillRect(left, STRIP - decode, wide, decode);
      context.globalAlpha = 1;
      context.fillRect(left, STRIP - decode - prompt, wide, prompt);
      if (padding) hatch(context, left, STRIP - decode - prompt - padding, wide, padding, colours.faint);
    }
    text(
      context, `Tokens per step (largest ${most}, root scale)`, LEFT + 2, 6,
      {colour: colours.faint, font: colours.font});
  }

  top(request) { return STRIP + GAP + request.lane * this.tall; }

  lane({context, colours, x}, request, now) {
    const y = this.top(request);
    const tall = this.tall - 3;
    const [colour, tint] = [colours.owners[request.colour], colours.tints[request.colour]];
    this.waits(context, colours, x, request, y + tall / 2, now);
    for (const span of request[this.detail]) {
      const [left, right] = [x(span.begin), x(span.end)];
      if (right < 0 || span.begin > now) continue;
      const wide = Math.max(right - left - (span.steps === 1 && right - left > 3 ? 1 : 0), 0.7);
      if (span.kind === DECODE) {
        context.fillStyle = tint;
        context.fillRect(left, y + tall * 0.25, wide, tall * 0.5);
      } else {
        context.fillStyle = colour;
        bar(context, left, y, Math.max(wide, 2), tall, 2);
      }
    }
    this.ends(context, colours, x, request, y, tall);
    this.label(context, colours, x, request, y + tall / 2);
  }

  // Thin lines where a request is there and does not run: before its start dotted, between its steps faint.
  waits(context, colours, x, request, y, now) {
    const first = request.spans[0]?.begin ?? Math.min(now, request.ended ?? now);
    const line = (from, to, dash, colour) => {
      context.strokeStyle = colour;
      context.lineWidth = 1.5;
      context.setLineDash(dash);
      context.beginPath();
      context.moveTo(x(from), y);
      context.lineTo(x(to), y);
      context.stroke();
      context.setLineDash([]);
    };
    if (first > request.received) line(request.received, first, [2, 4], colours.muted);
    const alive = request.ended ?? now;
    if (request.spans.length)
      line(first, alive, request.phase === "preempted" || request.phase === "swapped" ? [6, 4] : [], colours.strong);
  }

  ends(context, colours, x, request, y, tall) {
    if (request.ended !== undefined && request.spans.length) {
      context.fillStyle = request.reason === "cancelled" || request.reason === "error" ? colours.danger : colours.ink;
      context.fillRect(x(request.ended), y + 1, 2, tall - 2);
    }
    context.fillStyle = colours.danger;
    for (const mark of request.marks) {
      const at = x(mark);
      context.beginPath();
      context.moveTo(at - 5, y - 1);
      context.lineTo(at + 5, y - 1);
      context.lineTo(at, y + 7);
      context.fill();
    }
  }

  // The number stands where the request starts, or at the edge once that is out of sight.
  label(context, colours, x, request, y) {
    if (this.tall < 14) return;
    const start = x(request.spans[0]?.begin ?? request.received);
    const end = x(request.ended ?? Infinity);
    const at = Math.max(LEFT + 2, Math.min(start - LABEL - 2, end - LABEL));
    if (end - at < LABEL) return;
    context.fillStyle = colours.surface;
    context.globalAlpha = 0.85;
    context.fillRect(at, y - 7, LABEL - 1, 14);
    context.globalAlpha = 1;
    text(
      context, `#${request.id % 10000}`, at + LABEL - 3, y + 0.5,
      {colour: colours.muted, font: colours.font, size: 10, weight: 600, align: "right"});
  }

  // What lies under the pointer, in words; null: nothing.
  at(px, py) {
    if (!this.scale || py < STRIP + GAP) return null;
    const t = this.scale.now - (1 - (px - this.scale.from) / this.scale.width) * this.scale.span;
    const lane = Math.floor((py - STRIP - GAP) / this.tall);
    const request =
      this.shown.find((one) => one.lane === lane && one.received <= t && (one.ended ?? Infinity) + 0.05 >= t);
    if (!request) return null;
    const span = request[this.detail].find((one) => one.begin <= t && one.end >= t);
    return [
      `Request #${request.id}`, doing(request, t, span), `${request.prompt} prompt tokens, ${request.cached} from the cache`,
      `${request.generated} generated${request.preemptions ? `, preempted ${request.preemptions}×` : ""}`
    ];
  }
}

function doing(request, t, span) {
  if (!span) return t < (request.spans[0]?.begin ?? Infinity) ? "waits for a place" : "between steps";
  if (span.kind === DECODE) return `decode: ${span.tokens} ${span.tokens === 1 ? "token" : "tokens"}`;
  return `prefill: ${span.tokens} prompt tokens in one step`;
}
