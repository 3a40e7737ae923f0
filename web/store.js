// Conversations and settings, in this browser only. Where the browser forbids storage they last as long as the page.

const changes = "BroadcastChannel" in window ? new BroadcastChannel("sluice") : null;

function opened() {
  return new Promise((resolve) => {
    let request;
    try {
      request = indexedDB.open("sluice", 1);
    } catch {
      resolve(null);
      return;
    }
    request.onupgradeneeded = () => request.result.createObjectStore("conversations", {keyPath: "id"});
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => resolve(null);
    request.onblocked = () => resolve(null);
  });
}

let database;

function run(mode, act) {
  return new Promise((resolve, reject) => {
    const transaction = database.transaction("conversations", mode);
    const request = act(transaction.objectStore("conversations"));
    transaction.oncomplete = () => resolve(request.result);
    transaction.onerror = () => reject(transaction.error);
    transaction.onabort = () => reject(transaction.error);
  });
}

// All conversations by id. `changed(id)` is called when another tab changes one.
export async function openStore(changed) {
  database = await opened();
  if (changes) changes.onmessage = (message) => changed(message.data);
  const list = database ? await run("readonly", (store) => store.getAll()) : [];
  return new Map(list.map((conversation) => [conversation.id, conversation]));
}

export const isLasting = () => database !== null;

export async function load(id) { return database ? run("readonly", (store) => store.get(id)) : undefined; }

export async function save(conversation) {
  if (!database) return;
  await run("readwrite", (store) => store.put(structuredClone(conversation)));
  changes?.postMessage(conversation.id);
}

export async function remove(id) {
  if (!database) return;
  await run("readwrite", (store) => store.delete(id));
  changes?.postMessage(id);
}

// Settings are small JSON values.
export function setting(name, otherwise) {
  try {
    return JSON.parse(localStorage.getItem(`sluice.${name}`)) ?? otherwise;
  } catch {
    return otherwise;
  }
}

export function setSetting(name, value) {
  try {
    localStorage.setItem(`sluice.${name}`, JSON.stringify(value));
  } catch {
    // Forbidden or full: the value holds until the page is closed.
  }
}
