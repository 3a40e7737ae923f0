// Markdown to DOM nodes, as models write it: headings, lists, quotes, tables, fenced code. The text is never HTML:
// every character of it ends in a text node or in the checked address of a link. Time is linear in the text.
import {copyFrom, el, icon} from "./dom.js";
import {inline} from "./markdown_inline.js";

const FENCE = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*)$/;
const RULE = /^ {0,3}(?:(?:-[ \t]*){3,}|(?:\*[ \t]*){3,}|(?:_[ \t]*){3,})$/;
const ITEM = /^([ \t]*)([-*+]|\d{1,9}[.)])([ \t]+|$)(.*)$/;
const QUOTE = /^ {0,3}> ?(.*)$/;
const DIVIDER = /^\|?:?-+:?(?:\|:?-+:?)*\|?$/;  // without its spaces
const DEEPEST = 12;

const isBlank = (line) => line.trim() === "";
const width = (space) => space.replaceAll("\t", "    ").length;

// Where the block that starts at `lines[at]` ends, and what it is.
function blockAt(lines, at) {
  const line = lines[at];
  if (FENCE.test(line)) return {kind: "code", end: fenceEnd(lines, at)};
  if (HEADING.test(line)) return {kind: "heading", end: at + 1};
  if (RULE.test(line)) return {kind: "rule", end: at + 1};
  if (QUOTE.test(line)) return {kind: "quote", end: runEnd(lines, at, (next) => QUOTE.test(next))};
  if (ITEM.test(line)) return {kind: "list", end: listEnd(lines, at)};
  if (isTable(lines, at)) return {kind: "table", end: runEnd(lines, at, (next) => next.includes("|"))};
  let end = at + 1;
  while (end < lines.length && !isBlank(lines[end]) && !startsBlock(lines, end)) ++end;
  return {kind: "paragraph", end};
}

function startsBlock(lines, at) {
  const line = lines[at];
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || ITEM.test(line) ||
    isTable(lines, at);
}

const isTable = (lines, at) => lines[at].includes("|") && at + 1 < lines.length && lines[at + 1].includes("-") &&
  DIVIDER.test(lines[at + 1].replace(/\s/g, "")) && cells(lines[at]).length === cells(lines[at + 1]).length;

function runEnd(lines, at, belongs) {
  let end = at + 1;
  while (end < lines.length && belongs(lines[end])) ++end;
  return end;
}

function fenceEnd(lines, at) {
  const [, , mark] = lines[at].match(FENCE);
  for (let end = at + 1; end < lines.length; ++end) {
    const line = lines[end].trim();
    if (line.length >= mark.length && line[0] === mark[0] && line === mark[0].repeat(line.length)) return end + 1;
  }
  return lines.length;
}

// A list goes on over blank lines as long as what follows is indented or another item of the same kind.
function listEnd(lines, at) {
  const [, indent, mark] = lines[at].match(ITEM);
  const ordered = /\d/.test(mark);
  let end = at + 1;
  while (end < lines.length) {
    const line = lines[end];
    if (isBlank(line)) {
      const next = lines.slice(end, end + 3).find((one) => !isBlank(one));
      if (next === undefined || !(isItem(next, ordered) || width(next.match(/^[ \t]*/)[0]) > width(indent))) break;
    } else if (!isItem(line, ordered) && width(line.match(/^[ \t]*/)[0]) <= width(indent) && startsBlock(lines, end)) {
      break;
    }
    ++end;
  }
  return end;
}

function isItem(line, ordered) {
  const item = line.match(ITEM);
  return item !== null && !RULE.test(line) && /\d/.test(item[2]) === ordered;
}

function cells(line) {
  const inner = line.trim().replace(/^\|/, "").replace(/\|$/, "");
  return inner.split(/(?<!\\)\|/).map((cell) => cell.trim().replaceAll("\\|", "|"));
}

function build(kind, lines, depth) {
  switch (kind) {
    case "code":
      return codeBlock(lines);
    case "heading":
      return heading(lines[0]);
    case "rule":
      return el("hr");
    case "quote":
      return el("blockquote", {}, nested(lines.map((line) => line.match(QUOTE)[1]), depth));
    case "list":
      return list(lines, depth);
    case "table":
      return table(lines);
    default:
      return el("p", {}, inline(lines.map((line) => line.trim()).join("\n")));
  }
}

function nested(lines, depth) {
  return depth >= DEEPEST ? [inline(lines.join("\n"))] :
                            blocks(lines).map((block) => build(block.kind, block.lines, depth + 1));
}

function heading(line) {
  const [, marks, text] = line.match(HEADING);
  const words = text.trim().split(/\s+/);
  if (/^#+$/.test(words[words.length - 1])) words.pop();
  return el(`h${Math.min(marks.length + 2, 6)}`, {class: `md-h${marks.length}`}, inline(words.join(" ")));
}

function codeBlock(lines) {
  const [, indent, mark, info] = lines[0].match(FENCE);
  const closed = lines.length > 1 && lines[lines.length - 1].trim().startsWith(mark);
  const strip = new RegExp(`^ {0,${indent.length}}`);
  const code = lines.slice(1, closed ? -1 : undefined).map((line) => line.replace(strip, "")).join("\n");
  const copy = el(
    "button", {type: "button", class: "button quiet small", onclick: () => copyFrom(copy, code)}, icon("copy"), "Copy");
  return el(
    "div", {class: "code"},
    el("div", {class: "code-head"}, el("span", {}, info.trim().split(/\s/, 1)[0] || "text"), copy),
    el("pre", {tabindex: "0"}, el("code", {}, code)));
}

function list(lines, depth) {
  const [, indent, mark] = lines[0].match(ITEM);
  const ordered = /\d/.test(mark);
  const items = [];
  let content = 0;
  for (const line of lines) {
    const item = line.match(ITEM);
    if (item && width(item[1]) <= width(indent) + 1 && isItem(line, ordered)) {
      content = width(item[1]) + item[2].length + Math.min(width(item[3]) || 1, 4);
      items.push([item[4]]);
    } else {
      items[items.length - 1].push(dedent(line, content));
    }
  }
  const node = el(ordered ? "ol" : "ul", {}, items.map((item) => el("li", {}, itemBody(item, depth))));
  if (ordered && parseInt(mark, 10) !== 1) node.start = parseInt(mark, 10);
  return node;
}

function dedent(line, columns) {
  let at = 0;
  for (let column = 0; column < columns && (line[at] === " " || line[at] === "\t"); ++at)
    column += line[at] === "\t" ? 4 : 1;
  return line.slice(at);
}

// The first paragraph of an item stands without a box of its own, so that short items stay close together.
function itemBody(lines, depth) {
  const parts = nested(lines, depth);
  if (parts[0]?.tagName === "P" && !(parts[1]?.tagName === "P")) parts.splice(0, 1, ...parts[0].childNodes);
  return parts;
}

function table(lines) {
  const sides =
    cells(lines[1]).map((cell) => (cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left"));
  const row = (line, tag) => {
    const texts = cells(line).slice(0, sides.length);
    return el("tr", {}, sides.map((side, at) => el(tag, {class: `to-${side}`}, inline(texts[at] ?? ""))));
  };
  return el(
    "div", {class: "table", tabindex: "0"},
    el(
      "table", {}, el("thead", {}, row(lines[0], "th")),
      el("tbody", {}, lines.slice(2).map((line) => row(line, "td")))));
}

function blocks(lines) {
  const found = [];
  for (let at = 0; at < lines.length;) {
    if (isBlank(lines[at])) {
      ++at;
      continue;
    }
    const {kind, end} = blockAt(lines, at);
    found.push({kind, lines: lines.slice(at, end)});
    at = end;
  }
  return found;
}

const sources = new WeakMap();  // node to the text it was built from

// Shows `text` in `container`. Blocks whose text has not changed keep their nodes, so that a growing answer costs
// little and a selection in its finished part survives.
export function showMarkdown(container, text) {
  const wanted = blocks(text.replaceAll("\r\n", "\n").split("\n"));
  wanted.forEach(({kind, lines}, at) => {
    const source = lines.join("\n");
    const present = container.children[at];
    if (present && sources.get(present) === source) return;
    const node = build(kind, lines, 0);
    sources.set(node, source);
    if (present)
      present.replaceWith(node);
    else
      container.append(node);
  });
  while (container.children.length > wanted.length) container.lastElementChild.remove();
}
