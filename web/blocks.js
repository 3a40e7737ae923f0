// The KV memory as a map: one cell per block, coloured by the request that holds it.
import {prepare, theme} from "./palette.js";

const FLASH = 0.6;   // seconds a cell that changed hands stays bright
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
    const count = Math.max(1, Math.min(this.shown, this.cells.length));
    let size = Math.min(22, Math.floor(Math.sqrt(width * height / count)));
    while (size > 3 && Math.ceil(count / Math.floor(width / size)) * size > height) --size;
    return {size: Math.max(size, 3), columns: Math.floor(width / Math.max(size, 3))};
  }

  draw(history, now) {
    const {context, width, height} = prepare(this.canvas);
    const colours = theme();
    const {size, columns} = this.layout(width, height);
    this.grid = {size, columns};
    const gap = size > 9 ? 2 : 1;
    this.cells.slice(0, this.shown).forEach(([owner, shared, changed], at) => {
      const x = at % columns * size, y = Math.floor(at / columns) * size, side = size - gap;
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
    });
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
    const cell = column < this.grid.columns && at < this.shown ? this.cells[at] : undefined;
    if (!cell) return null;
    const [owner, shared] = cell;
    return [`Block ${at * this.stride}`, meaning(owner), ...(shared ? ["shared by several sequences"] : [])];
  }
}

function meaning(owner) {
  if (owner === 0) return "free";
  return owner < 0 ? "kept: its content may be asked for again" : `holds tokens of request #${owner}`;
}
