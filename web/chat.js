// The chat: which conversation is shown, what is being answered, and what the buttons do.
import {savedKey} from "./api.js";
import {Answer} from "./answer.js";
import {announce, byId, fill, icon, toast} from "./dom.js";
import {messageNode, startEdit, updateRunning, welcome} from "./messages.js";
import {requestParameters} from "./params.js";
import {PendingPictures} from "./pictures.js";
import * as store from "./store.js";
import * as tree from "./tree.js";

const NEAR_END = 80;  // pixels: the view follows an answer while its end is this close
const SAVE_EVERY = 2000;

export class Chat {
  // `shell` is told what changed: listChanged(), keyWanted(); model() and defaults() are of the chosen one.
  constructor(conversations, shell) {
    this.conversations = conversations;
    this.shell = shell;
    this.answers = new Map();  // conversation id to its running Answer
    this.messages = byId("messages");
    this.input = byId("input");
    this.pictures = new PendingPictures(byId("pending"));
    this.current = null;
    this.acts = {
      regenerate: (node) => this.regenerate(node),
      edit: (node, text) => this.ask(text, node.parent, node.images),
      choose: (node) => this.choose(node),
    };
    this.listen();
  }

  listen() {
    fill(byId("to-latest"), icon("down"), "Latest");
    byId("to-latest").addEventListener("click", () => this.toEnd());
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.answers.has(this.current.id))
        this.stop();
      else
        this.send();
    });
    this.input.addEventListener("input", () => this.fitInput());
    this.input.addEventListener("keydown", (event) => this.key(event));
    this.input.addEventListener("paste", (event) => this.takeFiles(event, event.clipboardData));
    byId("chat").addEventListener("dragover", (event) => event.preventDefault());
    byId("chat").addEventListener("drop", (event) => this.takeFiles(event, event.dataTransfer));
    this.messages.addEventListener("scroll", () => this.showToLatest(), {passive: true});
    addEventListener("pagehide", () => this.answers.forEach((answer, id) => store.save(this.conversations.get(id))));
  }

  key(event) {
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
      event.preventDefault();
      if (!this.answers.has(this.current.id)) this.send();
    } else if (event.key === "ArrowUp" && this.input.value === "") {
      event.preventDefault();
      this.editLast();
    }
  }

  // Pictures that are dropped or pasted; text is left to the browser.
  takeFiles(event, from) {
    const files = [...(from?.files ?? [])];
    if (files.length === 0) return;
    event.preventDefault();
    this.pictures.add(files);
  }

  editLast() {
    const last = tree.path(this.current).findLast(({node}) => node.role === "user");
    const box = last && this.boxOf(last.node);
    if (box && !this.answers.has(this.current.id)) startEdit(box, last.node, last.siblings, this.acts);
  }

  // -- which conversation
  open(conversation) {
    this.current = conversation;
    this.draw();
    this.toEnd();
    this.shell.listChanged();
  }

  openNew() {
    const draft = tree.newConversation(store.setting("system", ""));
    this.open(draft);
    this.input.focus();
  }

  system() { return this.current.system; }

  setSystem(text) {
    this.current.system = text;
    store.setSetting("system", text);
    if (this.conversations.has(this.current.id)) this.save(this.current);
  }

  async save(conversation) {
    try {
      await store.save(conversation);
    } catch (error) {
      toast(`The browser could not keep the conversation: ${error?.message ?? "storage failed"}`, "error");
    }
  }

  // -- asking
  send() {
    const text = this.input.value.trim();
    if (text === "") return;
    this.input.value = "";
    this.fitInput();
    const shown = tree.path(this.current);
    this.ask(text, shown.length ? shown[shown.length - 1].node.id : "", this.pictures.take());
  }

  // A question below `parent`, and its answer.
  ask(text, parent, images = []) {
    if (this.answers.has(this.current.id)) return;
    const question = tree.addNode(this.current, parent, "user", text, images.length ? {images} : {});
    this.conversations.set(this.current.id, this.current);
    this.answer(this.current, question);
  }

  regenerate(node) {
    if (!this.answers.has(this.current.id)) this.answer(this.current, this.current.nodes[node.parent]);
  }

  choose(node) {
    tree.choose(this.current, node);
    this.save(this.current);
    this.draw();
  }

  stop() { this.answers.get(this.current.id)?.stop(); }

  // What the server samples with where a request says nothing.
  defaults() { return this.shell.defaults(); }

  bodyFor(conversation, leaf) {
    const model = this.shell.model();
    return {model, messages: tree.promptFor(conversation, leaf), ...requestParameters()};
  }

  async answer(conversation, question) {
    const node = tree.addNode(conversation, question.id, "assistant", "", {model: this.shell.model()});
    const answer = new Answer(node, this.bodyFor(conversation, question.id), () => this.progress(conversation, node));
    this.answers.set(conversation.id, answer);
    this.saved = performance.now();
    this.draw();
    this.toEnd();
    this.shell.listChanged();
    this.save(conversation);
    const failure = await answer.run();
    this.answers.delete(conversation.id);
    conversation.updated = Date.now();
    await this.save(conversation);
    if (conversation === this.current) this.finished(node);
    this.shell.listChanged();
    if (failure?.status === 401) this.shell.keyWanted();
  }

  // Draws at most once a frame, and saves now and then, so that a closed tab loses little.
  progress(conversation, node) {
    if (performance.now() - this.saved > SAVE_EVERY) {
      this.saved = performance.now();
      this.save(conversation);
    }
    if (conversation !== this.current || this.frame) return;
    this.frame = requestAnimationFrame(() => {
      this.frame = 0;
      const box = conversation === this.current && this.boxOf(node);
      if (!box || !this.answers.has(conversation.id)) return;
      const follow = this.isAtEnd();
      updateRunning(box, node);
      if (follow)
        this.toEnd();
      else
        this.showToLatest();
    });
  }

  finished(node) {
    const follow = this.isAtEnd();
    this.draw();
    if (follow) this.toEnd();
    announce(node.error ? "The answer failed" : "The answer is complete");
  }

  // -- drawing
  draw() {
    const shown = tree.path(this.current);
    const running = this.answers.get(this.current.id)?.node;
    fill(
      this.messages, shown.length === 0 && welcome(this.shell.model(), (idea) => this.ask(idea, "")),
      shown.map((step) => messageNode(step, this.acts, step.node === running)));
    this.drawSend();
    this.showToLatest();
  }

  drawSend() {
    const busy = this.answers.has(this.current.id);
    const send = byId("send");
    send.setAttribute("aria-label", busy ? "Stop" : "Send");
    send.title = busy ? "Stop (Esc)" : "Send (Enter)";
    send.classList.toggle("stop", busy);
    fill(send, icon(busy ? "stop" : "send"));
  }

  boxOf(node) { return this.messages.querySelector(`[data-node="${CSS.escape(node.id)}"]`); }

  fitInput() {
    this.input.style.height = "auto";
    this.input.style.height = `${Math.min(this.input.scrollHeight, innerHeight * 0.4)}px`;
  }

  isAtEnd() { return this.messages.scrollHeight - this.messages.scrollTop - this.messages.clientHeight < NEAR_END; }

  toEnd() {
    this.messages.scrollTop = this.messages.scrollHeight;
    this.showToLatest();
  }

  showToLatest() { byId("to-latest").hidden = this.isAtEnd(); }

  // The request that would be sent now, as a command line.
  asCurl() {
    const text = this.input.value.trim() || "Hello";
    const shown = tree.path(this.current);
    const body = this.bodyFor(this.current, shown.length ? shown[shown.length - 1].node.id : "");
    body.messages.push({role: "user", content: text});
    const json = JSON.stringify(body, null, 2).replaceAll("'", "'\\''");
    const key = savedKey() ? " \\\n  -H \"Authorization: Bearer $SLUICE_API_KEY\"" : "";
    return `curl ${new URL("v1/chat/completions", location.href)} \\\n  -H 'Content-Type: application/json'${
      key} \\\n  -d '${json}'`;
  }

  keyChanged() { this.shell.connect(); }
}
