// The list of conversations: open, rename, delete, import, export.
import {ask, byId, el, fill, icon, iconButton, toast} from "./dom.js";
import * as store from "./store.js";
import * as tree from "./tree.js";

const LARGEST_FILE = 64 * 1024 * 1024;
const DAY = 86400000;

function ageOf(conversation) {
  const today = new Date().setHours(0, 0, 0, 0);
  if (conversation.updated >= today) return "Today";
  if (conversation.updated >= today - DAY) return "Yesterday";
  if (conversation.updated >= today - 6 * DAY) return "This week";
  return "Earlier";
}

export class Sidebar {
  constructor(chat, conversations) {
    this.chat = chat;
    this.conversations = conversations;
    fill(byId("new-chat"), icon("plus"), "New conversation");
    fill(byId("import"), icon("upload"), "Import");
    fill(byId("export"), icon("download"), "Export");
    byId("new-chat").addEventListener("click", () => {
      this.chat.openNew();
      this.chosen();
    });
    byId("export").addEventListener("click", () => this.exportAll());
    byId("import").addEventListener("click", () => byId("import-file").click());
    byId("import-file").addEventListener("change", (event) => this.importFile(event.target));
  }

  draw() {
    const list = [...this.conversations.values()].sort((a, b) => b.updated - a.updated);
    const groups = new Map();
    for (const conversation of list) {
      const age = ageOf(conversation);
      if (!groups.has(age)) groups.set(age, []);
      groups.get(age).push(this.row(conversation));
    }
    fill(
      byId("conversations"), list.length === 0 && el("p", {class: "nothing"}, "No conversations yet."),
      [...groups].map(([age, rows]) => el("section", {}, el("h2", {}, age), el("ul", {}, rows))));
  }

  row(conversation) {
    const shown = conversation === this.chat.current;
    const name = conversation.title || "Untitled";
    return el(
      "li", {class: shown ? "row shown" : "row"},
      el(
        "button", {
          type: "button",
          class: "row-open",
          "aria-current": shown ? "true" : null,
          title: name,
          onclick: () => {
            this.chat.open(conversation);
            this.chosen();
          }
        },
        this.chat.answers.has(conversation.id) && el("span", {class: "busy", "aria-label": "answering"}), name),
      el(
        "span", {class: "row-acts"}, iconButton("edit", `Rename ${name}`, () => this.rename(conversation)),
        iconButton("trash", `Delete ${name}`, () => this.remove(conversation))));
  }

  // Set by the page: a conversation was chosen, so a sidebar that covers the page goes away.
  chosen() {}

  async rename(conversation) {
    const title =
      await ask({title: "Rename conversation", confirm: "Rename", field: {label: "Title", value: conversation.title}});
    if (title === null || title.trim() === "") return;
    conversation.title = title.trim().slice(0, 200);
    await this.chat.save(conversation);
    this.draw();
  }

  async remove(conversation) {
    const sure = await ask({
      title: "Delete conversation?",
      text: `“${conversation.title}” is kept in this browser only and cannot be brought back.`,
      confirm: "Delete",
      danger: true
    });
    if (!sure) return;
    this.chat.answers.get(conversation.id)?.stop();
    this.conversations.delete(conversation.id);
    await store.remove(conversation.id);
    if (conversation === this.chat.current) this.chat.openNew();
    this.draw();
  }

  exportAll() {
    const text = JSON.stringify(
      {format: "sluice-conversations", version: 1, conversations: [...this.conversations.values()]}, null, 1);
    const address = URL.createObjectURL(new Blob([text], {type: "application/json"}));
    el("a", {href: address, download: `sluice-conversations-${new Date().toISOString().slice(0, 10)}.json`}).click();
    setTimeout(() => URL.revokeObjectURL(address), 10000);
  }

  async importFile(input) {
    const file = input.files[0];
    input.value = "";
    if (!file) return;
    try {
      const found = await readFile(file);
      for (const conversation of found) {
        this.conversations.set(conversation.id, conversation);
        await this.chat.save(conversation);
      }
      toast(`${found.length} ${found.length === 1 ? "conversation" : "conversations"} imported.`);
      this.draw();
    } catch (error) {
      toast(`${file.name} was not imported: ${error.message}`, "error");
    }
  }
}

async function readFile(file) {
  if (file.size > LARGEST_FILE) throw new Error(`it has ${file.size} bytes, the limit is ${LARGEST_FILE}.`);
  let value;
  try {
    value = JSON.parse(await file.text());
  } catch {
    throw new Error("it is not JSON.");
  }
  const list = Array.isArray(value?.conversations) ? value.conversations : [value];
  const found = list.map(tree.fromForeign).filter((one) => one !== null);
  if (!found.length) throw new Error("it holds no conversations.");
  return found;
}
