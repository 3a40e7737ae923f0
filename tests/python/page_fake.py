"""A server that answers like `sluice serve`, for the page: scripted answers, and a small engine whose steps feed /api/live.

What the page shows of hostile answers, wrong keys and broken streams has to be provoked, and no model does so on demand.
As a program it serves the page for people who work on it: python3 tests/python/page_fake.py [PORT] [KEY]."""
import json
import mimetypes
import random
import sys
import threading
import time
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

WEB = Path(__file__).resolve().parents[2] / "web"
POLICY = "default-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; object-src 'none'"
BLOCK, BLOCKS, SEQUENCES, BUDGET = 16, 320, 12, 192

HOSTILE = """<img src=x onerror="window.hacked=1"><script>window.hacked=1</script>
[click](javascript:window.hacked=1) [data](data:text/html,<script>window.hacked=1</script>) ![image](http://127.0.0.1:1/x.png)
[quote](http://a"onmouseover="window.hacked=1) <a href="javascript:window.hacked=1">x</a>
<svg onload=window.hacked=1> `</code><script>window.hacked=1</script>` <style>body{display:none}</style>

```html"><script>window.hacked=1</script>
</pre><script>window.hacked=1</script>
```
| <b>a</b> | b |
|---|---|
| <iframe srcdoc="<script>parent.hacked=1</script>"> | [x](JaVaScRiPt:hacked) |
"""

RICH = """## How a lock works

A **canal lock** moves boats between *two levels*. In short:

1. The boat enters the chamber.
2. The gates close behind it.
   - upper gate: `shut`
   - lower gate: `shut`
3. Water flows until the levels are **equal**.

| step | valve | level |
|:-----|:-----:|------:|
| fill | open  | 3.2 m |
| wait | shut  | 3.2 m |
| drain| open  | 0.4 m |

```python
def fill(chamber, level):
    while chamber.level < level:
        chamber.open_valve()
    return chamber
```

> Never open both gates at once.

See [the history](https://example.org/locks) or https://example.org/map for more.
"""


ARGUMENTS = '{"city": "Zürich <b>", "days": 3}'


def deltas_for(text):
    """What the choices of an answer hold, in order."""
    if "weather" in text:
        return ([{"reasoning_content": piece} for piece in ("I should ", "look it <b>up</b>.")] +
                [{"tool_calls": [{"index": 0, "id": "abcdefghi", "type": "function",
                                  "function": {"name": "get_weather", "arguments": ""}}]}] +
                [{"tool_calls": [{"index": 0, "function": {"arguments": letter}}]} for letter in ARGUMENTS])
    if "as json" in text:
        return [{"content": piece} for piece in ('{"a": [1, ', '{"b": null}]', "}")]
    return [{"content": piece + " "} for piece in answer_for(text).split(" ")]


def text_of(message):
    content = message["content"]
    return content if isinstance(content, str) else " ".join(part["text"] for part in content if part["type"] == "text")


def answer_for(text):
    if "hostile" in text:
        return HOSTILE
    if "long" in text:
        return " ".join(f"word{i}" for i in range(2000))
    if "lock" in text or "rich" in text:
        return RICH
    return f"You said: {text}. " + "The water rises, the gate opens, and the boat goes on. " * random.randint(1, 5)


class Request:
    def __init__(self, number, prompt, limit, now):
        self.id, self.prompt, self.limit, self.received = number, prompt, limit, now
        self.cached = self.computed = self.generated = self.preemptions = 0
        self.phase, self.blocks, self.cancelled = "waiting", [], False
        self.tokens = threading.Semaphore(0)

    def view(self):
        return {"id": self.id, "phase": self.phase, "received": self.received, "prompt": self.prompt,
                "cached": self.cached, "computed": self.computed, "generated": self.generated, "choices": 1,
                "preemptions": self.preemptions}


class Engine:
    """Continuous batching with chunked prefill over invented tokens. One lock guards everything."""

    def __init__(self):
        self.lock = threading.Lock()
        self.start, self.number, self.step_number = time.monotonic(), 0, 0
        self.waiting, self.running, self.steps, self.ended = [], [], [], []
        self.owner = [0] * BLOCKS  # -1: cached, 0: free
        self.shared = list(range(4))  # the blocks of the common prefix, once computed
        self.counters = dict.fromkeys(("requests_received", "generated_tokens", "prompt_tokens", "cached_tokens", "steps",
                                       "preemptions_recompute", "blocks_evicted"), 0)
        threading.Thread(target=self.loop, daemon=True).start()

    def now(self):
        return time.monotonic() - self.start

    def submit(self, prompt, limit):
        with self.lock:
            self.number += 1
            self.counters["requests_received"] += 1
            request = Request(self.number, prompt, limit, self.now())
            self.waiting.append(request)
            return request

    def take_block(self, request):
        for wanted in (0, -1):
            for at, owner in enumerate(self.owner):
                if owner == wanted and at >= len(self.shared):
                    self.owner[at] = request.id
                    self.counters["blocks_evicted"] += wanted == -1
                    request.blocks.append(at)
                    return True
        return False

    def reserve(self, request, positions):
        while len(request.blocks) * BLOCK < positions - request.cached:
            if not self.take_block(request):
                return False
        return True

    def free(self, request, keep):
        for at in request.blocks:
            self.owner[at] = -1 if keep else 0
        request.blocks = []

    def admit(self):
        while self.waiting and len(self.running) < SEQUENCES:
            room = sum(owner <= 0 for owner in self.owner) - len(self.running)
            if room * BLOCK < self.waiting[0].prompt + self.waiting[0].generated + 4 * BLOCK:
                break
            request = self.waiting.pop(0)
            request.phase = "running"
            request.cached = request.computed = min(len(self.shared) * BLOCK, (request.prompt - 1) // BLOCK * BLOCK)
            self.counters["prompt_tokens"] += request.prompt
            self.counters["cached_tokens"] += request.cached
            self.running.append(request)

    def preempt_last(self):
        victim = self.running.pop()
        self.free(victim, keep=False)
        victim.phase, victim.computed, victim.preemptions = "preempted", 0, victim.preemptions + 1
        self.counters["preemptions_recompute"] += 1
        self.waiting.insert(0, victim)
        return victim.id

    def plan(self):
        work, preempted, budget = [], [], BUDGET
        for request in list(self.running):
            total = request.prompt + request.generated
            end = min(total, request.computed + budget)
            while request in self.running and not self.reserve(request, end):
                preempted.append(self.preempt_last())
            if request in self.running and end > request.computed:
                kind = 1 if end - request.computed == 1 and request.generated else 2 if end == total else 0
                work.append((request, request.computed, end, kind))
                budget -= end - request.computed
        return work, preempted

    def commit(self, work):
        for request, _, end, kind in work:
            request.computed = end
            if kind:
                request.generated += 1
                self.counters["generated_tokens"] += 1
                request.tokens.release()
            if request.generated >= request.limit or request.cancelled:
                self.running.remove(request)
                self.free(request, keep=True)
                self.ended.append({"id": request.id, "t": self.now(), "reason": "cancelled" if request.cancelled else "stop"})

    def loop(self):
        while True:
            with self.lock:
                self.waiting = [one for one in self.waiting if not one.cancelled]
                self.admit()
                work, preempted = self.plan()
                begun = self.now()
            tokens = sum(end - begin for _, begin, end, _ in work)
            time.sleep(0.012 + 0.0004 * tokens if work else 0.01)
            with self.lock:
                if work:
                    self.step_number += 1
                    self.counters["steps"] += 1
                    self.steps.append({"n": self.step_number, "t": begun, "ms": 1000 * (self.now() - begun), "padding": 0,
                                       "work": [[one.id, begin, end, kind] for one, begin, end, kind in work],
                                       "preempted": preempted})
                self.commit(work)

    def owners(self):
        users = sum(1 for one in self.running if one.cached)
        cells = [(self.running[0].id if users else -1, int(users > 1)) if at in self.shared else (owner, 0)
                 for at, owner in enumerate(self.owner)]
        runs = []
        for owner, shared in cells:
            if runs and runs[-1][1:] == [owner, shared]:
                runs[-1][0] += 1
            else:
                runs.append([1, owner, shared])
        return runs

    def state(self, since, ended_since):
        with self.lock:
            counts = [sum(owner > 0 for owner in self.owner), sum(owner < 0 for owner in self.owner)]
            return {"model": 0, "t": self.now(), "step": self.step_number,
                    "requests": [one.view() for one in (self.running + self.waiting)[:256]], "waiting": len(self.waiting),
                    "blocks": [{"total": BLOCKS, "used": counts[0], "cached": counts[1], "window": 0, "host": 0, "disk": 0,
                                "owners": self.owners()}],
                    "steps": [step for step in self.steps[-256:] if step["n"] > since],
                    "ended": self.ended[ended_since:], "counters": dict(self.counters), "histograms": {}}


def lab_plan(batch, context):
    """A planner whose steps take a millisecond for every sequence, and ten for the weights."""
    def phase(tokens):
        sums = {"bytes": 1e9, "operations": 2e9 * tokens, "seconds": 0.01 + 0.001 * tokens}
        return {**sums, "parts": [{"name": "qkv", "bound": "memory", **sums}]}
    step = phase(batch)["seconds"]
    return {"machine": {"name": "fake", "measured": True, "read_bytes_per_s": 1e11, "multiply_ops_per_s": 4e12},
            "model": {"name": "fake-1b", "weights": "Q4_1", "weights_bytes": 1e9},
            "cell": {"batch": batch, "context": context, "fits": True, "ttft_s": 0.5, "tpot_s": step, "floor_s": 0.01,
                     "tokens_per_s": batch / step, "bound": "memory", "kv_bytes": 1e6 * batch, "largest_batch": 99},
            "decode": phase(batch), "prefill": phase(512), "curve": [[2**i, 0.01 + 0.001 * 2**i] for i in range(10)],
            "choices": {"weights": ["BF16"], "stored": "Q4_1", "devices": ["H200"], "max_seqs": 16, "context": 4096}}


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, kind, body, extra=()):
        self.send_response(status)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.send_header("content-security-policy", POLICY)
        self.send_header("x-content-type-options", "nosniff")
        for name, value in extra:
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def reply_json(self, status, value, extra=()):
        self.reply(status, "application/json", json.dumps(value).encode(), extra)

    def fail(self, status, code, message, extra=()):
        self.reply_json(status, {"error": {"message": message, "type": "error", "param": None, "code": code}}, extra)

    def authorised(self):
        key = self.server.key
        if not key or self.headers.get("authorization") == f"Bearer {key}":
            return True
        self.fail(401, "invalid_api_key", "Incorrect API key provided.")
        return False

    def do_GET(self):
        path = self.path.split("?")[0]
        if path == "/v1/models":
            if self.authorised():
                self.reply_json(200, {"object": "list", "data": [{"id": "fake-1b", "object": "model", "max_model_len": 4096,
                                                                  "meta": {"sampling": {"temperature": 0.2, "top_p": 0.9}}},
                                                                 {"id": "fake-7b", "object": "model"}]})
            return
        if path == "/api/live":
            if self.authorised():
                self.live()
            return
        file = WEB / (path.lstrip("/") or "index.html")
        if file.parent != WEB or not file.is_file():
            self.fail(404, "not_found", f"No such page: {path}")
            return
        kind = "text/javascript" if file.suffix == ".js" else mimetypes.guess_type(file.name)[0]
        self.reply(200, kind, file.read_bytes())

    def stream_head(self):
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("cache-control", "no-cache")
        self.send_header("connection", "close")
        self.end_headers()
        self.close_connection = True

    def event(self, data, name=None):
        text = (f"event: {name}\n" if name else "") + f"data: {data if isinstance(data, str) else json.dumps(data)}\n\n"
        self.wfile.write(text.encode())
        self.wfile.flush()

    def live(self):
        self.stream_head()
        engine, since, ended = self.server.engine, 0, len(self.server.engine.ended)
        try:
            self.event({"version": "fake", "t": engine.now(), "interval": 0.2, "models": [
                {"id": "fake-1b", "context": 4096, "device": "cpu", "block_size": BLOCK, "scheme": "continuous",
                 "layout": "packed", "max_sequences": SEQUENCES, "max_tokens": BUDGET}]}, "hello")
            while True:
                state = engine.state(since, ended)
                since, ended = state["step"], len(engine.ended)
                self.event(state, "state")
                time.sleep(0.2)
        except OSError:
            pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if not self.authorised():
            return
        self.server.bodies.append(body)
        if self.path == "/v1/completions":
            self.complete(body)
            return
        if self.path == "/api/lab/plan":
            self.reply_json(200, lab_plan(body["batch"], body["context"]))
            return
        text = text_of(body["messages"][-1])
        if "overflow" in text:
            self.fail(400, "context_length_exceeded", "This model's maximum context length is 4096 tokens. However, you "
                      "requested 9000 tokens (8000 in the messages, 1000 in the completion).")
        elif "overload" in text:
            self.fail(503, "server_is_overloaded", "Too many requests wait.", [("retry-after", "3")])
        else:
            self.answer(body, text)

    def complete(self, body):
        requests = [self.server.engine.submit(len(prompt.split()) * 2, body["max_tokens"]) for prompt in body["prompt"]]
        self.stream_head()
        try:
            for _ in range(body["max_tokens"]):
                for at, request in enumerate(requests):
                    request.tokens.acquire()
                    self.event({"choices": [{"index": at, "text": "word ", "finish_reason": None}]})
            self.event("[DONE]")
        except OSError:
            for request in requests:
                request.cancelled = True

    def answer(self, body, text):
        pieces = deltas_for(text)
        prompt = sum(len(text_of(message).split()) * 4 for message in body["messages"]) + 20
        limit = min(len(pieces), body.get("max_tokens") or 4096)
        request = self.server.engine.submit(prompt, limit)
        frame = {"id": f"chatcmpl-{request.id}", "object": "chat.completion.chunk", "created": 0, "model": body["model"]}
        say = lambda delta, finish=None: self.event(
            {**frame, "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})
        self.stream_head()
        started = time.monotonic()
        try:
            say({"role": "assistant", "content": ""})
            for at in range(limit):
                request.tokens.acquire()
                if at == limit - 1:
                    self.server.may_end.wait(60)
                if "break" in text and at == 3:
                    request.cancelled = True
                    return
                say(pieces[at])
            say({}, "length" if limit < len(pieces) else "tool_calls" if "tool_calls" in pieces[-1] else "stop")
            self.event({**frame, "choices": [], "usage": {
                "prompt_tokens": prompt, "completion_tokens": limit, "total_tokens": prompt + limit,
                "prompt_tokens_details": {"cached_tokens": request.cached}},
                "timings": {"predicted_n": limit, "predicted_per_second": limit / (time.monotonic() - started)}})
            self.event("[DONE]")
        except OSError:
            request.cancelled = True
            with self.server.lock:
                self.server.hung_up += 1


class Fake(ThreadingHTTPServer):
    """`bodies` has the chat requests that came, `hung_up` counts clients that left during an answer."""
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, port=0, key=""):
        super().__init__(("127.0.0.1", port), Handler)
        self.key, self.engine, self.lock = key, Engine(), threading.Lock()
        self.bodies, self.hung_up = [], 0
        self.may_end = threading.Event()
        self.may_end.set()
        self.url = f"http://127.0.0.1:{self.server_address[1]}/"

    @contextmanager
    def unfinished(self):
        """Answers wait before their last piece."""
        self.may_end.clear()
        try:
            yield
        finally:
            self.may_end.set()


if __name__ == "__main__":
    server = Fake(int(sys.argv[1]) if len(sys.argv) > 1 else 8099, sys.argv[2] if len(sys.argv) > 2 else "")
    print(server.url, flush=True)
    server.serve_forever()
