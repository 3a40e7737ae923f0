// The server's API as the page uses it. The key, where the server wants one, is kept in this browser only.

const KEY = "sluice.key";
let memoryKey = "";

export function savedKey() {
  try {
    return localStorage.getItem(KEY) ?? memoryKey;
  } catch {
    return memoryKey;
  }
}

export function saveKey(key) {
  memoryKey = key;
  try {
    if (key)
      localStorage.setItem(KEY, key);
    else
      localStorage.removeItem(KEY);
  } catch {
    // Storage can be forbidden; the key then lasts as long as the page.
  }
}

export class ApiError extends Error {
  constructor(message, {status = 0, code = "", retryAfter = 0} = {}) {
    super(message);
    this.status = status;
    this.code = code;
    this.retryAfter = retryAfter;
  }
}

function fromBody(error, status, retryAfter) {
  const code = typeof error?.code === "string" ? error.code : "";
  return new ApiError(error?.message || `The server answered with status ${status}.`, {status, code, retryAfter});
}

async function toError(response) {
  const retryAfter = Number(response.headers.get("retry-after")) || 0;
  try {
    return fromBody((await response.json()).error, response.status, retryAfter);
  } catch {
    return fromBody(null, response.status, retryAfter);
  }
}

// fetch() with the key; every answer that is not a success becomes an ApiError.
async function request(path, {body, signal} = {}) {
  const headers = {};
  const key = savedKey();
  if (key) headers.authorization = `Bearer ${key}`;
  if (body) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(
      path, {method: body ? "POST" : "GET", headers, signal, cache: "no-store", body: body && JSON.stringify(body)});
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiError("The server cannot be reached. Is it still running?");
  }
  if (!response.ok) throw await toError(response);
  return response;
}

export async function listModels() {
  const list = await (await request("v1/models")).json();
  return Array.isArray(list.data) ? list.data : [];
}

const ask = async (path, body) => (await request(path, {body})).json();
export const askPlan = (question) => ask("api/lab/plan", question);
export const playSchemes = (load) => ask("api/lab/schemes", load);

const LONGEST_LINE = 16 * 1024 * 1024;

// The lines of a body, without their ends.
async function* lines(response) {
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let rest = "";
  try {
    for (;;) {
      const {done, value} = await reader.read();
      if (done) break;
      const parts = (rest + decoder.decode(value, {stream: true})).split("\n");
      rest = parts.pop();
      if (rest.length > LONGEST_LINE) throw new ApiError("The server sent a line that is too long.");
      for (const part of parts) yield part.endsWith("\r") ? part.slice(0, -1) : part;
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}

// The events of a text/event-stream: {event, data}.
async function* events(response) {
  let event = "message", data = [];
  for await (const line of lines(response)) {
    if (line === "") {
      if (data.length) yield {event, data: data.join("\n")};
      event = "message";
      data = [];
    } else if (line.startsWith("data:")) {
      data.push(line.slice(line[5] === " " ? 6 : 5));
    } else if (line.startsWith("event:")) {
      event = line.slice(6).trim();
    }
  }
}

export const streamChat = (body, signal) => streamAnswer("v1/chat/completions", body, signal);
export const streamCompletion = (body, signal) => streamAnswer("v1/completions", body, signal);

// The chunks of an answer, in order. Ends normally only where the server said that the answer is complete.
async function* streamAnswer(path, body, signal) {
  const response = await request(path, {body: {...body, stream: true, stream_options: {include_usage: true}}, signal});
  for await (const {data} of connected(events(response))) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw fromBody(chunk.error, response.status, 0);
    yield chunk;
  }
  throw new ApiError("The connection ended before the answer did.");
}

export async function* streamLive(signal) {
  const response = await request("api/live", {signal});
  for await (const {event, data} of connected(events(response))) yield {event, data: JSON.parse(data)};
}

async function* connected(stream) {
  try {
    yield* stream;
  } catch (error) {
    if (error.name === "AbortError" || error instanceof ApiError) throw error;
    throw new ApiError("The connection to the server was lost.");
  }
}
