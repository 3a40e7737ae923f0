// Colours that people with any kind of colour vision can tell apart (after Okabe and Ito), one set per theme; and what
// every canvas needs.

const LIGHT = ["#0072b2", "#e08e00", "#00916a", "#c4649a", "#2f9fe0", "#cf5300", "#7559c4", "#827f12"];
const DARK = ["#4aa3e8", "#f2b134", "#2fc498", "#e396c3", "#86cdf7", "#f4813f", "#ac93ee", "#c9c54b"];

export const COLOURS = LIGHT.length;

// Two colours as #rrggbb, mixed: `share` is that of the first.
function mix(first, second, share) {
  const parts = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
  const [a, b] = [parts(first), parts(second)];
  return `rgb(${a.map((part, at) => Math.round(part * share + b[at] * (1 - share))).join(" ")})`;
}

// The page's own colours and the set of the theme that holds now.
export function theme() {
  const style = getComputedStyle(document.documentElement);
  const value = (name) => style.getPropertyValue(`--${name}`).trim();
  const owners = style.colorScheme === "dark" ? DARK : LIGHT;
  return {
    owners,
    tints: owners.map((colour) => mix(colour, value("surface"), 0.6)),
    ink: value("ink"),
    muted: value("muted"),
    faint: value("faint"),
    line: value("line"),
    strong: value("line-strong"),
    surface: value("surface"),
    sunken: value("sunken"),
    accent: value("accent"),
    danger: value("danger"),
    font: value("sans"),
  };
}

// A context whose unit is one CSS pixel, cleared, and the size of the canvas in these.
export function prepare(canvas) {
  const {width, height} = canvas.getBoundingClientRect();
  const scale = devicePixelRatio || 1;
  const [columns, rows] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== columns || canvas.height !== rows) {
    canvas.width = columns;
    canvas.height = rows;
  }
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  return {context, width, height};
}

export function text(context, words, x, y, {colour, font, size = 11, weight = 500, align = "left"}) {
  context.fillStyle = colour;
  context.font = `${weight} ${size}px ${font}`;
  context.textAlign = align;
  context.textBaseline = "middle";
  context.fillText(words, x, y);
}

export function bar(context, x, y, width, height, radius) {
  context.beginPath();
  context.roundRect(x, y, width, height, Math.min(radius, width / 2, height / 2));
  context.fill();
}

// Diagonal lines over an area, for what is computed or kept for nobody.
export function hatch(context, x, y, width, height, colour) {
  context.save();
  context.beginPath();
  context.rect(x, y, width, height);
  context.clip();
  context.strokeStyle = colour;
  context.lineWidth = 1;
  context.beginPath();
  for (let at = x - height; at < x + width; at += 4) {
    context.moveTo(at, y + height);
    context.lineTo(at + height, y);
  }
  context.stroke();
  context.restore();
}
