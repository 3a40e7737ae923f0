// Starts the page: views, theme, models, keys, shortcuts.
import {ApiError, listModels} from "./api.js";
import {Chat} from "./chat.js";
import {byId, el, fill, icon, toast} from "./dom.js";
import {LabView} from "./lab.js";
import {LiveView} from "./live.js";
import {askForKey, setUpParameters} from "./params.js";
import {Sidebar} from "./sidebar.js";
import * as store from "./store.js";

const narrow = matchMedia("(max-width: 860px)");

// -- theme
function isDark() {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
}

function drawTheme() {
  const label = isDark() ? "Use the light theme" : "Use the dark theme";
  fill(byId("theme"), icon(isDark() ? "sun" : "moon"));
  byId("theme").setAttribute("aria-label", label);
  byId("theme").title = label;
}

function setUpTheme() {
  byId("theme").addEventListener("click", () => {
    const chosen = isDark() ? "light" : "dark";
    document.documentElement.dataset.theme = chosen;
    try {
      localStorage.setItem("sluice.theme", chosen);
    } catch {
      // Forbidden: the choice lasts as long as the page.
    }
    drawTheme();
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawTheme);
  drawTheme();
}

// -- the sidebar on narrow screens
function setUpSidebar() {
  const opener = byId("open-sidebar");
  const show = (open) => {
    document.body.classList.toggle("with-sidebar", open);
    byId("scrim").hidden = !open;
    opener.setAttribute("aria-expanded", String(open));
    if (open) byId("new-chat").focus();
  };
  fill(opener, icon("menu"));
  opener.addEventListener("click", () => show(true));
  byId("scrim").addEventListener("click", () => show(false));
  byId("sidebar").addEventListener("keydown", (event) => {
    if (event.key === "Escape") show(false);
  });
  narrow.addEventListener("change", () => show(false));
  return () => show(false);
}

// -- views
const VIEWS = ["chat", "live", "lab"];

// `running`: the views that do something only while they are shown, by name.
function setUpViews(running) {
  fill(byId("tab-chat"), icon("chat"), "Chat");
  fill(byId("tab-live"), icon("pulse"), "Live");
  fill(byId("tab-lab"), icon("flask"), "Lab");
  const show = (view) => {
    for (const one of VIEWS) {
      byId(one).hidden = one !== view;
      byId(`tab-${one}`).setAttribute("aria-selected", String(one === view));
      byId(`tab-${one}`).tabIndex = one === view ? 0 : -1;
    }
    document.title = view === "chat" ? "sluice" : `sluice: ${view}`;
    for (const [name, one] of Object.entries(running)) {
      if (name === view)
        one.show();
      else
        one.hide();
    }
  };
  const fromAddress = () => show(VIEWS.find((view) => location.hash === `#${view}`) ?? "chat");
  for (const view of VIEWS) {
    const tab = byId(`tab-${view}`);
    tab.addEventListener("click", () => {
      history.replaceState(null, "", `#${view}`);
      show(view);
    });
    tab.addEventListener("keydown", (event) => {
      if (event.key !== "ArrowLeft" && event.key !== "ArrowRight") return;
      const step = event.key === "ArrowRight" ? 1 : VIEWS.length - 1;
      const other = byId(`tab-${VIEWS[(VIEWS.indexOf(view) + step) % VIEWS.length]}`);
      other.focus();
      other.click();
    });
  }
  addEventListener("hashchange", fromAddress);
  fromAddress();
}

// -- models
let listed = [];

// What the server samples the chosen model with where a request says nothing.
const defaults = () => listed.find((model) => model.id === byId("model").value)?.meta?.sampling ?? {};

async function connect(chat) {
  const select = byId("model");
  try {
    listed = await listModels();
    const before = store.setting("model", "");
    fill(select, listed.map((model) => el("option", {value: model.id, selected: model.id === before}, model.id)));
    select.disabled = listed.length < 2;
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    fill(select, el("option", {value: ""}, "no model"));
    if (error.status === 401) wantKey(chat);
    else toast(error.message, "error");
  }
  chat.draw();
}

async function wantKey(chat) {
  const given = await askForKey("This server asks for a key. It is kept in this browser only.");
  if (given) connect(chat);
  return given;
}

function setUpShortcuts(chat) {
  addEventListener("keydown", (event) => {
    if (event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "o") {
      event.preventDefault();
      byId("tab-chat").click();
      chat.openNew();
    } else if (event.key === "Escape" && !byId("chat").hidden && !document.querySelector("dialog[open]")) {
      chat.stop();
    }
  });
}

async function start() {
  setUpTheme();
  let chat = null;
  let sidebar = null;
  let parameters = null;
  const conversations = await store.openStore(async (id) => {
    if (chat.answers.has(id)) return;
    const fresh = await store.load(id);
    if (fresh)
      conversations.set(id, fresh);
    else
      conversations.delete(id);
    if (chat.current.id === id && fresh)
      chat.open(fresh);
    else
      sidebar.draw();
  });
  const shell = {
    model: () => byId("model").value,
    defaults,
    listChanged: () => {
      sidebar.draw();
      parameters.refresh();
    },
    keyWanted: () => wantKey(chat),
    connect: () => connect(chat),
  };
  chat = new Chat(conversations, shell);
  sidebar = new Sidebar(chat, conversations);
  parameters = setUpParameters(chat);
  fill(byId("open-parameters"), icon("sliders"), el("span", {class: "wide-only"}, "Parameters"));
  sidebar.chosen = setUpSidebar();
  byId("model").addEventListener("change", () => {
    store.setSetting("model", byId("model").value);
    parameters.refresh();
  });
  setUpShortcuts(chat);
  chat.openNew();
  setUpViews({live: new LiveView(byId("live"), shell), lab: new LabView(byId("lab"), shell)});
  if (!store.isLasting()) toast("This browser keeps nothing for this page: conversations end with it.");
  await connect(chat);
}

start();
