// The inside of a Markdown paragraph: emphasis, code, links, line breaks.
import {el} from "./dom.js";

const DEEPEST = 6;
const LONGEST_LABEL = 2000;  // of a link: how far its "]" is looked for
const MOST_SKIPPED = 32;     // inner spans of a span
const PUNCTUATION = /[!-/:-@[-`{-~]/;
const WORD = /[\p{L}\p{N}_]/u;
const BARE = /https?:\/\/[^\s<>"'`|\\^{}\[\]]+/y;

// Only these two schemes ever become links.
export function safeAddress(text) {
  if (!/^https?:\/\//i.test(text)) return null;
  try {
    const url = new URL(text);
    return url.protocol === "http:" || url.protocol === "https:" ? url.href : null;
  } catch {
    return null;
  }
}

const link = (address, ...children) =>
  el("a", {href: address, title: address, target: "_blank", rel: "noopener noreferrer nofollow"}, ...children);

// One pass from left to right; each rule either takes a piece of the text or leaves its first character as text. A
// delimiter that is known to have no partner further on is not looked for again.
class Reader {
  constructor(text, depth) {
    this.text = text;
    this.depth = depth;
    this.at = 0;
    this.plain = "";
    this.nodes = [];
    this.missing = new Set();
  }

  read() {
    while (this.at < this.text.length) {
      if (!this.special()) this.plain += this.text[this.at++];
    }
    this.flush();
    return this.nodes;
  }

  flush() {
    if (this.plain !== "") this.nodes.push(document.createTextNode(this.plain));
    this.plain = "";
  }

  push(node, end) {
    this.flush();
    this.nodes.push(node);
    this.at = end;
    return true;
  }

  special() {
    switch (this.text[this.at]) {
      case "\\":
        return this.escape();
      case "\n":
        return this.push(el("br"), this.at + 1);
      case "`":
        return this.code();
      case "*":
      case "_":
        return this.emphasis(this.text[this.at]);
      case "~":
        return this.between("~~", "del");
      case "!":
        return this.text[this.at + 1] === "[" && this.link(this.at + 1);
      case "[":
        return this.link(this.at);
      case "<":
        return this.angle();
      case "h":
        return this.bare();
      default:
        return false;
    }
  }

  escape() {
    const next = this.text[this.at + 1];
    if (next === undefined || !PUNCTUATION.test(next)) return false;
    this.plain += next;
    this.at += 2;
    return true;
  }

  // The next place of `mark` from `from` on, or -1.
  find(mark, from) {
    if (this.missing.has(mark)) return -1;
    const found = this.text.indexOf(mark, from);
    if (found < 0) this.missing.add(mark);
    return found;
  }

  code() {
    let ticks = 1;
    while (this.text[this.at + ticks] === "`") ++ticks;
    const mark = "`".repeat(ticks);
    const end = this.find(mark, this.at + ticks);
    if (end < 0) {
      this.plain += mark;
      this.at += ticks;
      return true;
    }
    const inside = this.text.slice(this.at + ticks, end).replaceAll("\n", " ");
    const padded = inside.length > 2 && inside.startsWith(" ") && inside.endsWith(" ");
    return this.push(el("code", {}, padded ? inside.slice(1, -1) : inside), end + ticks);
  }

  emphasis(mark) {
    if (mark === "_" && WORD.test(this.text[this.at - 1] ?? " ")) return false;
    return this.between(mark + mark, "strong") || this.between(mark, "em");
  }

  between(mark, tag) {
    const start = this.at + mark.length;
    if (this.depth >= DEEPEST || !this.text.startsWith(mark, this.at) || /^\s?$/.test(this.text[start] ?? ""))
      return false;
    const end = this.closing(mark, start + 1);
    if (end < 0 || /\s/.test(this.text[end - 1])) return false;
    if (mark[0] === "_" && WORD.test(this.text[end + mark.length] ?? " ")) return false;
    return this.push(el(tag, {}, inline(this.text.slice(start, end), this.depth + 1)), end + mark.length);
  }

  // Where the span ends: a single mark does not end at a double one, a double one takes the last two of three.
  closing(mark, from) {
    let end = this.find(mark, from);
    for (let tries = 0; mark.length === 1 && end >= 0 && this.text[end + 1] === mark; ++tries) {
      if (tries === MOST_SKIPPED) return -1;
      end = this.text.indexOf(mark, end + 2);
    }
    return mark.length === 2 && end >= 0 && this.text[end + 2] === mark[0] ? end + 1 : end;
  }

  // [label](address) and, with a "!" before it, an image: shown as a link, because the page loads nothing by itself.
  link(open) {
    const close = this.text.slice(open, open + LONGEST_LABEL).indexOf("](");
    if (close < 0 || this.depth >= DEEPEST) return false;
    const start = open + close + 2;
    const rest = this.text.slice(start, start + LONGEST_LABEL)
                   .match(/^\s*<?([^\s<>()]*(?:\([^\s<>()]*\)[^\s<>()]*)*)>?(?:\s+"[^"]*")?\s*\)/);
    const address = rest && safeAddress(rest[1]);
    if (!address) return false;
    const label = this.text.slice(open + 1, open + close);
    return this.push(link(address, inline(label || address, DEEPEST)), start + rest[0].length);
  }

  angle() {
    const end = this.find(">", this.at);
    const address = end > 0 && end - this.at < LONGEST_LABEL && safeAddress(this.text.slice(this.at + 1, end));
    return address ? this.push(link(address, address), end + 1) : false;
  }

  bare() {
    BARE.lastIndex = this.at;
    if (WORD.test(this.text[this.at - 1] ?? " ")) return false;
    const found = BARE.exec(this.text)?.[0].replace(/[.,;:!?)*_~]+$/, "");
    const address = found && safeAddress(found);
    return address ? this.push(link(address, found), this.at + found.length) : false;
  }
}

// The nodes of a piece of text. REQUIRES: depth counts how deep in emphasis it stands.
export function inline(text, depth = 0) { return new Reader(text, depth).read(); }
