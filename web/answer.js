// One answer while it arrives: reads the stream into a node and measures it.
import {streamChat} from "./api.js";

export class Answer {
  // `changed()` is called after every piece.
  constructor(node, body, changed) {
    this.node = node;
    this.body = body;
    this.changed = changed;
    this.abort = new AbortController();
    this.sent = performance.now();
    this.first = 0;
    this.pieces = 0;
  }

  stop() { this.abort.abort(); }

  // Runs to the end. What goes wrong is written on the node; an error is also returned.
  async run() {
    let failure = null;
    try {
      await this.stream();
    } catch (error) {
      if (error.name === "AbortError" || this.abort.signal.aborted)
        this.node.stopped = true;
      else
        failure = error;
    }
    if (failure) this.node.error = explain(failure);
    this.node.stats = this.measured();
    return failure;
  }

  async stream() {
    for await (const chunk of streamChat(this.body, this.abort.signal)) {
      this.take(chunk);
      this.changed();
    }
  }

  take(chunk) {
    const choice = chunk.choices?.[0];
    const text = choice?.delta?.content ?? "";
    const thought = choice?.delta?.reasoning_content ?? choice?.delta?.reasoning ?? "";
    const calls = choice?.delta?.tool_calls ?? [];
    if (text !== "" || thought !== "" || calls.length) {
      this.first ||= performance.now();
      this.last = performance.now();
      ++this.pieces;
    }
    this.node.content += text;
    if (thought !== "") this.node.reasoning = (this.node.reasoning ?? "") + thought;
    calls.forEach((part) => this.takeCall(part));
    if (choice?.finish_reason) this.finish = choice.finish_reason;
    if (chunk.usage) this.usage = chunk.usage;
    if (chunk.timings) this.timings = chunk.timings;
    this.node.stats = this.measured();
  }

  // The name of a call comes first, its arguments follow in parts.
  takeCall(part) {
    this.node.calls ??= [];
    const call = this.node.calls[part.index] ??= {name: "", arguments: ""};
    call.name += part.function?.name ?? "";
    call.arguments += part.function?.arguments ?? "";
  }

  // The server's own numbers where it gave them, else what was seen from here. Times in milliseconds.
  measured() {
    const stats = {};
    if (this.first) stats.ttft = this.first - this.sent;
    stats.tokens = this.timings?.predicted_n ?? this.usage?.completion_tokens ?? this.pieces;
    if (this.timings?.predicted_per_second)
      stats.perSecond = this.timings.predicted_per_second;
    else if (stats.tokens > 1 && this.last > this.first)
      stats.perSecond = (stats.tokens - 1) * 1000 / (this.last - this.first);
    if (this.usage) stats.prompt = this.usage.prompt_tokens;
    if (this.usage?.prompt_tokens_details?.cached_tokens) stats.cached = this.usage.prompt_tokens_details.cached_tokens;
    if (this.finish === "length") stats.atLimit = 1;
    return stats;
  }
}

function explain(error) {
  const wait = error.retryAfter ? ` Try again in ${error.retryAfter} s.` : "";
  if (error.status === 401)
    return "The server asks for an API key, or does not know this one. Set it under Parameters.";
  if (error.status === 503 && error.code === "server_is_overloaded") return `The server has too much to do.${wait}`;
  return error.message + wait;
}
