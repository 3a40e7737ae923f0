// The KV memory as a map: one cell per block, coloured by the request that holds it.
import {prepare, theme} from "./palette.js";

const FLASH = 0.6;   // seconds a cell that changed hands stays bright
const MOST = 6000;   // cells; of more, every k-th is drawn
const FEWEST = 256;  // cells; free ones behind the last that was ever taken are left out beyond that

export class Blocks {
  constructor(canvas) {
    this.canvas = canvas;
    this.cells = [];  // [owner, shared, changed at]
    this.shown = FEWEST;
  }

  take(group, t) {
    const before = this.cells;
    const cells = [];
    for (const [length, owner, shared] of group.owners ?? []) {
      for (let i = 0; i < length; ++i) {
        const old = before[cells.length];
        cells.push([owner, shared, old ? (old[0] === owner ? old[2] : t) : -Infinity]);
      }
    }
    this.cells = cells;
    this.stride = group.stride ?? 1;
    const taken = 1 + cells.findLastIndex(([owner]) => owner !== 0);
    while (this.shown < taken) this.shown *= 2;
    if (taken * 4 < this.shown) this.shown = Math.max(FEWEST, this.shown / 2);
  }

  // Blocks that are free and not drawn.
  hidden() {
    return Math.max(0, this.cells.length - this.shown) * this.stride;
  }

  // The largest cells that fit.
  layout(width, height) {
    const blocks = Math.max(1, Math.min(this.shown, this.cells.length));
    const every = Math.ceil(blocks / MOST);
    const count = Math.ceil(blocks / every);
    let size = Math.min(22, Math.floor(Math.sqrt(width * height / count)));
    while (size > 3 && Math.ceil(count / Math.floor(width / size)) * size > height) --size;
    size = Math.max(size, 3);
    return {size, columns: Math.floor(width / size), every, count};
  }

  draw(history, now) {
    const {context, width, height} = prepare(this.canvas);
    const colours = theme();
    this.grid = this.layout(width, height);
    const {size, columns, every, count} = this.grid;
    const side = size - (size > 9 ? 2 : 1);
    for (let at = 0; at < count; ++at) {
      const cell = this.cells[at * every];
      const place = {x: at % columns * size, y: Math.floor(at / columns) * size, side, now};
      if (cell) this.cell(context, colours, history, cell, place);
    }
  }

  cell(context, colours, history, [owner, shared, changed], {x, y, side, now}) {
    context.fillStyle = this.colourOf(owner, history, colours);
    context.fillRect(x, y, side, side);
    if (owner === 0) {
      context.strokeStyle = colours.line;
      context.lineWidth = 1;
      context.strokeRect(x + 0.5, y + 0.5, side - 1, side - 1);
    }
    if (shared) this.mark(context, colours, x, y, side);
    const fresh = 1 - (now - changed) / FLASH;
    if (fresh > 0 && fresh <= 1 && owner > 0) {
      context.fillStyle = colours.surface;
      context.globalAlpha = 0.6 * fresh;
      context.fillRect(x, y, side, side);
      context.globalAlpha = 1;
    }
  }

  colourOf(owner, history, colours) {
    if (owner === 0) return colours.sunken;
    return owner < 0 ? colours.strong : colours.owners[history.requests.get(owner)?.colour ?? 0];
  }

  // Shared blocks have a hole.
  mark(context, colours, x, y, side) {
    const hole = Math.max(2, Math.round(side * 0.4));
    context.fillStyle = colours.surface;
    context.fillRect(x + (side - hole) / 2, y + (side - hole) / 2, hole, hole);
  }

  at(px, py) {
    if (!this.grid) return null;
    const column = Math.floor(px / this.grid.size);
    const at = Math.floor(py / this.grid.size) * this.grid.columns + column;
    const inside = column < this.grid.columns && at < this.grid.count;
    const cell = inside ? this.cells[at * this.grid.every] : undefined;
    if (!cell) return null;
    const [owner, shared] = cell;
    const number = at * this.grid.every * this.stride;
    return [`Block ${number}`, meaning(owner), ...(shared ? ["shared by several sequences"] : [])];
  }
}

function meaning(owner) {
  if (owner === 0) return "free";
  return owner < 0 ? "kept: its content may be asked for again" : `holds tokens of request #${owner}`;
}
