// Requests for the live view to show: prompts of different lengths that begin alike, answers of different lengths.
import {streamCompletion} from "./api.js";

const OPENING = [
  "You keep the logbook of a canal with twelve locks. You write in short plain sentences, you never leave out a time or",
  "a water level, and you name every boat. The gates are opened by hand, the valves by wheel. Boats that go up wait for",
  "boats that go down. In dry months two boats share a lockful of water. At night the gates stay shut.",
].join(" ");

const TASKS = [
  "Entry of a quiet day:",
  "Two boats arrive at the same time. Who goes first, and why:",
  "What has to be checked before the upper gate is opened:",
  "The longest night of the winter, when the river rose and nobody slept:",
  "How the water lifts a boat, told to a child:",
];

// A browser opens six connections to a server. One is the live stream's and one is left for the chat, so a request
// carries several prompts, each of which the engine takes as a request of its own.
const CONNECTIONS = 4;
const PROMPTS = [2, 6];  // per request, from and to

const between = (least, most) => least + Math.floor(Math.random() * (most - least + 1));

function prompt() {
  const notes = Array.from(
    {length: between(0, 24)},
    () => `Note ${between(100, 999)}: level ${between(10, 90)} cm, ` +
      `${between(1, 9)} boats, wind ${between(0, 12)} m/s.`);
  return [OPENING, ...notes, TASKS[between(0, TASKS.length - 1)]].join(" ");
}

function pause(ms, signal) {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => {
      clearTimeout(timer);
      resolve();
    });
  });
}

// Sends `rounds` requests on each connection and throws the answers away. Resolves, when all are over, to the reason
// why the last one that failed did, or to "".
export async function makeLoad(model, rounds, signal) {
  let reason = "";
  const connection = async (at) => {
    await pause(at * 700, signal);
    for (let round = 0; round < rounds && !signal.aborted; ++round) {
      const body = {
        model,
        temperature: 0.8,
        max_tokens: between(24, 160),
        ignore_eos: true,
        prompt: Array.from({length: between(...PROMPTS)}, prompt)
      };
      try {
        for await (const _ of streamCompletion(body, signal))
          if (signal.aborted) return;
      } catch (error) {
        if (!signal.aborted) reason = error.message;
      }
      await pause(between(0, 500), signal);
    }
  };
  await Promise.all(Array.from({length: CONNECTIONS}, (_, at) => connection(at)));
  return reason;
}
