// Small charts over the same time as the lanes.
import {prepare, text, theme} from "./palette.js";

const TOP = 8, BOTTOM = 4, RIGHT = 40;

// 1, 2 or 5 times a power of ten, at least `value`.
function niceLimit(value) {
  const power = 10 ** Math.floor(Math.log10(value));
  return [1, 2, 5, 10].map((factor) => factor * power).find((limit) => limit >= value * 0.999);
}

// series: [{points: [{t, value}], dots, dashed, area, faint}]; format: value to words.
export function drawCurve(canvas, series, {now, span, least, most, format}) {
  const {context, width, height} = prepare(canvas);
  const colours = theme();
  const from = now - span;
  const inside = series.map((one) => ({...one, points: visible(one.points, from, now)}));
  const highest = Math.max(least, ...inside.flatMap((one) => one.points.map((point) => point.value ?? 0)));
  const limit = most ?? niceLimit(highest);
  const x = (t) => (t - from) / span * (width - RIGHT);
  const y = (value) => height - BOTTOM - Math.min(value / limit, 1) * (height - TOP - BOTTOM);
  context.strokeStyle = colours.line;
  context.lineWidth = 1;
  for (const share of [0, 0.5, 1]) {
    const at = Math.round(y(share * limit)) + 0.5;
    context.beginPath();
    context.moveTo(0, at);
    context.lineTo(width - RIGHT, at);
    context.stroke();
    if (share > 0)
      text(
        context, format(share * limit), width, at,
        {colour: colours.faint, font: colours.font, size: 10, align: "right"});
  }
  for (const one of inside) {
    if (one.dots)
      drawDots(context, colours, one.points, x, y);
    else
      drawLine(context, colours, one, x, y, height - BOTTOM);
  }
}

// The points of the time shown, and one before it, so that lines begin at the edge.
function visible(points, from, now) {
  const first = points.findIndex((point) => point.t >= from);
  if (first < 0) return [];
  return points.slice(Math.max(0, first - 1)).filter((point) => point.t <= now);
}

function drawDots(context, colours, points, x, y) {
  for (const point of points) {
    context.fillStyle = colours.owners[point.colour ?? 0];
    context.beginPath();
    context.arc(x(point.t), y(point.value), 3, 0, 2 * Math.PI);
    context.fill();
  }
}

function drawLine(context, colours, {points, dashed, area, faint}, x, y, floor) {
  const colour = faint ? colours.faint : colours.accent;
  let open = false;
  context.beginPath();
  for (const point of points) {
    if (point.value === null || point.value === undefined) {
      open = false;
    } else if (open) {
      context.lineTo(x(point.t), y(point.value));
    } else {
      context.moveTo(x(point.t), y(point.value));
      open = true;
    }
  }
  context.strokeStyle = colour;
  context.lineWidth = 1.75;
  context.lineJoin = "round";
  context.setLineDash(dashed ? [4, 3] : []);
  context.stroke();
  context.setLineDash([]);
  const known = points.filter((point) => point.value !== null && point.value !== undefined);
  if (!area || known.length < 2) return;
  context.lineTo(x(known[known.length - 1].t), floor);
  context.lineTo(x(known[0].t), floor);
  context.fillStyle = colour;
  context.globalAlpha = 0.12;
  context.fill();
  context.globalAlpha = 1;
}
