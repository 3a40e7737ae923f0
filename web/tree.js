// A conversation is a tree: editing a question or asking for another answer adds a sibling, and nothing is lost. Plain
// values, fit for storage:
//   {id, title, created, updated, system, nodes: {id: node}, chosen: {parent id, or "" for the top: child id}}
//   node {id, parent, role, content, created, order, reasoning?, model?, stats?, error?, stopped?, images?}

import {isPicture} from "./pictures.js";

export function newId() {
  const bytes = crypto.getRandomValues(new Uint8Array(12));
  return Array.from(bytes, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

export function newConversation(system = "") {
  const now = Date.now();
  return {id: newId(), title: "", created: now, updated: now, system, nodes: {}, chosen: {}};
}

export function children(conversation, parent) {
  return Object.values(conversation.nodes).filter((node) => node.parent === parent).sort((a, b) => a.order - b.order);
}

// The nodes that are shown, first to last.
export function path(conversation) {
  const nodes = [];
  const below = new Map();
  for (const node of Object.values(conversation.nodes)) {
    if (!below.has(node.parent)) below.set(node.parent, []);
    below.get(node.parent).push(node);
  }
  for (let parent = ""; below.has(parent);) {
    const siblings = below.get(parent).sort((a, b) => a.order - b.order);
    const node = siblings.find((one) => one.id === conversation.chosen[parent]) ?? siblings[siblings.length - 1];
    nodes.push({node, siblings});
    below.delete(parent);
    parent = node.id;
  }
  return nodes;
}

export function addNode(conversation, parent, role, content, more = {}) {
  const order = 1 + Object.values(conversation.nodes).reduce((most, node) => Math.max(most, node.order), 0);
  const node = {id: newId(), parent, role, content, created: Date.now(), order, ...more};
  conversation.nodes[node.id] = node;
  conversation.chosen[parent] = node.id;
  conversation.updated = node.created;
  if (!conversation.title && role === "user") conversation.title = titleOf(content);
  return node;
}

export function choose(conversation, node) { conversation.chosen[node.parent] = node.id; }

function titleOf(text) {
  const line = text.trim().split("\n", 1)[0];
  return line.length > 48 ? `${line.slice(0, 47).trimEnd()}…` : line;
}

// What the model is sent for an answer below `leaf`: failed and empty answers are left out. Where there is no system
// prompt none is sent: the model's template may put in its own, as for every other client.
export function promptFor(conversation, leaf) {
  const messages = [];
  for (let node = conversation.nodes[leaf]; node; node = conversation.nodes[node.parent]) {
    if (node.content !== "" || node.images) messages.unshift({role: node.role, content: contentOf(node)});
  }
  if (conversation.system.trim() !== "") messages.unshift({role: "system", content: conversation.system});
  return messages;
}

// A plain text, or parts where the question has pictures.
function contentOf(node) {
  if (!node.images) return node.content;
  const pictures = node.images.map((url) => ({type: "image_url", image_url: {url}}));
  return [...pictures, {type: "text", text: node.content}];
}

// A conversation from a file, or null where it is none. Only known members of known types come through.
export function fromForeign(value) {
  if (typeof value !== "object" || value === null || typeof value.nodes !== "object" || value.nodes === null)
    return null;
  const conversation = newConversation(text(value.system));
  conversation.title = text(value.title).slice(0, 200);
  conversation.created = number(value.created, conversation.created);
  conversation.updated = number(value.updated, conversation.updated);
  const nodes = Object.values(value.nodes).filter(isNode);
  for (const node of nodes) conversation.nodes[node.id] = copyOf(node);
  for (const [parent, child] of Object.entries(value.chosen ?? {})) {
    if (conversation.nodes[child]?.parent === parent) conversation.chosen[parent] = child;
  }
  return nodes.length ? conversation : null;
}

const text = (value) => (typeof value === "string" ? value : "");
const number = (value, otherwise) => (Number.isFinite(value) ? value : otherwise);
const ID = /^[0-9a-f]{8,64}$/;

function isNode(value) {
  return typeof value === "object" && value !== null && ID.test(value.id) &&
    (value.parent === "" || ID.test(value.parent)) && value.parent !== value.id &&
    (value.role === "user" || value.role === "assistant") && typeof value.content === "string";
}

function copyOf(node) {
  const copy = {
    id: node.id,
    parent: node.parent,
    role: node.role,
    content: node.content,
    created: number(node.created, Date.now()),
    order: number(node.order, 0)
  };
  for (const name of ["reasoning", "model", "error"]) {
    if (typeof node[name] === "string") copy[name] = node[name];
  }
  if (node.stopped === true) copy.stopped = true;
  if (node.role === "user" && Array.isArray(node.images)) {
    const images = node.images.filter(isPicture);
    if (images.length) copy.images = images;
  }
  if (Array.isArray(node.calls))
    copy.calls = node.calls.map((call) => ({name: text(call?.name), arguments: text(call?.arguments)}));
  if (typeof node.stats === "object" && node.stats !== null) {
    copy.stats = {};
    for (const [name, value] of Object.entries(node.stats)) {
      if (Number.isFinite(value)) copy.stats[name] = value;
    }
  }
  return copy;
}
