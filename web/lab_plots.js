// The pictures of the Lab view: the roofline, decode over batches, and lanes of a played scheme.
import {bar, prepare, text, theme} from "./palette.js";

const LEFT = 52, RIGHT = 14, TOP = 14, BOTTOM = 34;
const LOW = 0.25, HIGH = 4096;  // operations per byte that are shown

const UNITS = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]];

// 1.2e9 as "1.2 G"
export function short(value) {
  const [size, letter] = UNITS.find(([size]) => value >= size) ?? [1, ""];
  return `${Number((value / size).toPrecision(3))} ${letter}`.trim();
}

function axes({context, width, height}, colours, x, y) {
  const style = {colour: colours.faint, font: colours.font, size: 10};
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  for (const [value, label] of x.ticks) {
    const at = Math.round(x.to(value)) + 0.5;
    context.beginPath();
    context.moveTo(at, TOP);
    context.lineTo(at, height - BOTTOM);
    context.stroke();
    text(context, label, at, height - BOTTOM + 10, {...style, align: "center"});
  }
  for (const [value, label] of y.ticks) {
    const at = Math.round(y.to(value)) + 0.5;
    context.beginPath();
    context.moveTo(LEFT, at);
    context.lineTo(width - RIGHT, at);
    context.stroke();
    text(context, label, LEFT - 6, at, {...style, align: "right"});
  }
  text(context, x.title, (LEFT + width - RIGHT) / 2, height - 8, {...style, align: "center"});
}

const scale = (from, to, low, high) => (value) =>
  from + (Math.log(value) - Math.log(low)) / (Math.log(high) - Math.log(low)) * (to - from);

function decades(low, high) {
  const out = [];
  for (let at = 10 ** Math.ceil(Math.log10(low)); at <= high * 1.001; at *= 10) out.push([at, short(at)]);
  return out;
}

function dot(context, x, y, radius, colour, ring) {
  context.fillStyle = colour;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fill();
  if (!ring) return;
  context.strokeStyle = ring;
  context.lineWidth = 2;
  context.stroke();
}

// points: [{name, intensity, rate, kind}], kind "part", "decode", "prefill" or "engine". Returns where they lie, for
// tips: [{x, y, name}].
export function drawRoofline(canvas, {read, multiply}, points) {
  const frame = prepare(canvas);
  const {context, width, height} = frame;
  const colours = theme();
  const high = multiply * 2.5, low = Math.min(read * LOW * 0.5, ...points.map((one) => one.rate * 0.5));
  const x = {to: scale(LEFT, width - RIGHT, LOW, HIGH), title: "operations per byte read"};
  const y = {to: scale(height - BOTTOM, TOP, low, high), ticks: decades(low, high)};
  x.ticks = [1, 10, 100, 1000].map((value) => [value, String(value)]);
  axes(frame, colours, x, y);
  const ridge = multiply / read;
  context.strokeStyle = colours.ink;
  context.lineWidth = 2;
  context.beginPath();
  context.moveTo(x.to(LOW), y.to(read * LOW));
  context.lineTo(x.to(Math.min(ridge, HIGH)), y.to(Math.min(multiply, read * HIGH)));
  context.lineTo(x.to(HIGH), y.to(Math.min(multiply, read * HIGH)));
  context.stroke();
  const label = {colour: colours.muted, font: colours.font, size: 11};
  text(context, `${short(multiply)}op/s`, width - RIGHT, y.to(multiply) - 10, {...label, align: "right"});
  text(context, `${short(read)}B/s`, x.to(4) - 8, y.to(4 * read) - 6, {...label, align: "right"});  // points lie below
  const looks = {
    part: [3, colours.muted, null],
    prefill: [7, colours.owners[1], colours.surface],
    decode: [7, colours.owners[0], colours.surface],
    engine: [8, colours.danger, colours.surface],
  };
  const clamp = (value, least, most) => Math.min(Math.max(value, least), most);
  return points.map((one) => {
    const at = {
      x: x.to(clamp(one.intensity, LOW, HIGH)),
      y: clamp(y.to(one.rate), TOP, height - BOTTOM),
      name: one.name
    };
    dot(context, at.x, at.y, ...looks[one.kind]);
    return at;
  });
}

// curve: [[batch, seconds of a step]]; the batch that is chosen is marked.
export function drawBatches(canvas, curve, chosen) {
  const frame = prepare(canvas);
  const {context, width, height} = frame;
  const colours = theme();
  const rates = curve.map(([batch, seconds]) => batch / seconds);
  const most = Math.max(...rates) * 1.1;
  const x = {to: scale(LEFT, width - RIGHT, 1, curve[curve.length - 1][0]), title: "sequences at once"};
  x.ticks = [1, 4, 16, 64, 256].map((batch) => [batch, String(batch)]);
  const y = {to: (value) => height - BOTTOM - value / most * (height - TOP - BOTTOM)};
  y.ticks = [0, 0.5, 1].map((share) => [share * most / 1.1, short(share * most / 1.1)]);
  axes(frame, colours, x, y);
  context.strokeStyle = colours.owners[0];
  context.lineWidth = 2;
  context.beginPath();
  curve.forEach(([batch], at) => context.lineTo(x.to(batch), y.to(rates[at])));
  context.stroke();
  dot(context, x.to(chosen.batch), y.to(chosen.batch / chosen.tpot_s), 6, colours.owners[0], colours.surface);
}

// One scheme up to the moment `now`: a lane per request; what it waited for is faint.
export function drawPlayed(canvas, played, requests, {now, end}) {
  const {context, width, height} = prepare(canvas);
  const colours = theme();
  const x = (seconds) => seconds / end * width;
  const row = height / Math.max(1, requests.length);
  const thick = Math.max(1, row * 0.72);
  requests.forEach(([at], lane) => {
    const spans = played.lanes[lane] ?? [];
    const y = lane * row + (row - thick) / 2;
    const last = spans.length ? spans[spans.length - 1][1] : end;
    if (at < now) {
      context.fillStyle = colours.line;
      context.fillRect(x(at), y + thick / 2 - 0.5, x(Math.min(now, last)) - x(at), 1);
    }
    for (const [begin, until, kind] of spans) {
      if (begin >= now) break;
      context.fillStyle = kind ? colours.tints[lane % colours.tints.length] : colours.owners[lane % colours.owners.length];
      bar(context, x(begin), y, Math.max(0.75, x(Math.min(until, now)) - x(begin)), thick, 2);
    }
  });
  if (now >= end) return;
  context.fillStyle = colours.danger;
  context.fillRect(x(now), 0, 1.5, height);
}
