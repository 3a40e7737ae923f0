// Building pages from nodes. Text only ever becomes text: nothing here, or anywhere in the page, parses HTML.

// el("a", {class: "x", href: "…", onclick: f}, "text", node, …). Null, false and undefined attributes and children are
// left out; attributes that start with "on" are listeners.
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on"))
      node.addEventListener(name.slice(2), value);
    else
      node.setAttribute(name, value === true ? "" : String(value));
  }
  append(node, children);
  return node;
}

export function append(node, children) {
  for (const child of children.flat()) {
    if (child !== null && child !== undefined && child !== false) node.append(child);
  }
}

export function fill(node, ...children) {
  node.replaceChildren();
  append(node, children);
  return node;
}

export const byId = (id) => document.getElementById(id);

// 24 x 24 outlines, drawn with the text's colour.
const OUTLINES = {
  plus: "M12 5v14M5 12h14",
  menu: "M4 7h16M4 12h16M4 17h16",
  send: "M12 19V6M6 11l6-6 6 6",
  stop: "M7 7h10v10H7z",
  copy: "M9 9h10v11H9zM5 15V4h10",
  check: "M5 12.5l4.5 4.5L19 7.5",
  edit: "M4 20l1-4L16 5l3 3L8 19zM14 7l3 3",
  trash: "M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13M10.5 11v5M13.5 11v5",
  again: "M19 12a7 7 0 1 1-2.2-5.1M19 4v4.5h-4.5",
  sliders: "M4 7h9M17 7h3M4 17h3M11 17h9M15 5v4M9 15v4",
  sun:
    "M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2.5v2M12 19.5v2M2.5 12h2M19.5 12h2M5.3 5.3l1.4 1.4M17.3 17.3l1.4 1.4M5.3 18.7l1.4-1.4M17.3 6.7l1.4-1.4",
  moon: "M20 14.5A8.5 8.5 0 0 1 9.5 4a8.5 8.5 0 1 0 10.5 10.5z",
  download: "M12 4v11M7 11l5 5 5-5M5 20h14",
  upload: "M12 16V5M7 9l5-5 5 5M5 20h14",
  left: "M14.5 6l-6 6 6 6",
  right: "M9.5 6l6 6-6 6",
  down: "M6 9.5l6 6 6-6",
  close: "M6 6l12 12M18 6L6 18",
  chat: "M4 5h16v11H10l-4 4v-4H4z",
  pulse: "M3 12h4l3-7 4 14 3-7h4",
  flask: "M9 3h6M10 3v6L5 18a2 2 0 0 0 2 3h10a2 2 0 0 0 2-3l-5-9V3M7.5 15h9",
  pause: "M8.5 6v12M15.5 6v12",
  play: "M8 5.5v13l11-6.5z",
  bolt: "M13 3L5 14h6l-1 7 8-11h-6z",
};

export function icon(name) {
  const space = "http://www.w3.org/2000/svg";
  const svg = document.createElementNS(space, "svg");
  svg.setAttribute("viewBox", "0 0 24 24");
  svg.setAttribute("class", "icon");
  svg.setAttribute("aria-hidden", "true");
  const path = document.createElementNS(space, "path");
  path.setAttribute("d", OUTLINES[name]);
  svg.append(path);
  return svg;
}

// A button of an icon alone; the label is its name and its tooltip.
export function iconButton(name, label, onclick, extra = {}) {
  return el(
    "button",
    {type: "button", class: "button quiet icon-only small", title: label, "aria-label": label, onclick, ...extra},
    icon(name));
}

// Copies text and shows on the button, for a moment, that it is done.
export async function copyFrom(button, text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    copyBySelection(text);
  }
  const before = [...button.childNodes];
  button.replaceChildren(icon("check"), ...(before.length > 1 ? ["Copied"] : []));
  announce("Copied");
  setTimeout(() => button.replaceChildren(...before), 1400);
}

// Where the page is served without TLS from another machine, browsers offer nothing better.
function copyBySelection(text) {
  const area = el("textarea", {class: "visually-hidden", readonly: true});
  area.value = text;
  document.body.append(area);
  area.select();
  document.execCommand("copy");
  area.remove();
}

export function announce(text) { byId("announce").textContent = text; }

// A message that goes away by itself; errors stay longer.
export function toast(text, kind = "info") {
  const box =
    el("div", {class: `toast ${kind}`}, el("span", {}, text), iconButton("close", "Dismiss", () => box.remove()));
  byId("toasts").append(box);
  setTimeout(() => box.remove(), kind === "error" ? 12000 : 5000);
}

// Asks in a modal dialog; resolves to the text (or true, where there is no field), or to null when it is dismissed.
export function ask({title, text, field, confirm, danger}) {
  return new Promise((resolve) => {
    const input = field && el("input", {
                    class: "field",
                    type: field.type ?? "text",
                    value: field.value ?? "",
                    "aria-label": field.label,
                    placeholder: field.label,
                    autocomplete: "off",
                    spellcheck: "false"
                  });
    const form = el(
      "form", {method: "dialog", class: "dialog-body"}, el("h2", {}, title), text && el("p", {}, text), input,
      el(
        "div", {class: "dialog-actions"},
        el("button", {type: "button", class: "button", onclick: () => dialog.close("")}, "Cancel"),
        el("button", {type: "submit", value: "yes", class: danger ? "button danger" : "button primary"}, confirm)));
    const dialog = el(
      "dialog", {
        class: "dialog",
        "aria-label": title,
        onclose: () => {
          dialog.remove();
          resolve(dialog.returnValue === "yes" ? (input ? input.value : true) : null);
        }
      },
      form);
    document.body.append(dialog);
    dialog.showModal();
    if (input) input.select();
  });
}
