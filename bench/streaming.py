"""Many streams at once over plain sockets: what a load client and the fault tests need, and no more."""
import asyncio
import json
import time
from dataclasses import dataclass, field


@dataclass
class Stream:
    """What one streamed completion gave, and when."""
    status: int = 0
    headers: dict = field(default_factory=dict)
    text: str = ""
    tokens: int = 0  # as the server counted them
    error: dict = None
    complete: bool = False  # [DONE] came
    sent: float = 0.0
    times: list = field(default_factory=list)  # of events that carried text
    ended: float = 0.0
    who: str = ""  # asked for it, and how it ended: for those who compare streams
    how: str = ""

    @property
    def ttft(self):
        return self.times[0] - self.sent

    @property
    def gaps(self):
        return [later - earlier for earlier, later in zip(self.times, self.times[1:])]


def request_bytes(path, body, headers=None):
    payload = json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json", f"Content-Length: {len(payload)}",
             "Connection: close", *(f"{name}: {value}" for name, value in (headers or {}).items())]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + payload


def completion(prompt, tokens, **fields):
    return {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True}} | fields


async def read_head(reader):
    head = await reader.readuntil(b"\r\n\r\n")
    lines = head.decode("latin-1").split("\r\n")
    fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines[1:] if line)}
    return int(lines[0].split()[1]), fields


async def read_chunks(reader, chunked):
    """The pieces of a body as they come."""
    while chunked:
        size = int((await reader.readline()).split(b";")[0], 16)
        data = await reader.readexactly(size + 2)
        if size == 0:
            return
        yield data[:-2]
    while not chunked:
        data = await reader.read(65536)
        if not data:
            return
        yield data


def take_event(stream, line, now):
    if not line.startswith("data: "):
        return
    if line == "data: [DONE]":
        stream.complete = True
        return
    event = json.loads(line[len("data: "):])
    if "error" in event:
        stream.error = event["error"]
    text = "".join(choice.get("text", "") for choice in event.get("choices", ()))
    if text:
        stream.text += text
        stream.times.append(now)
    if event.get("usage"):
        stream.tokens = event["usage"]["completion_tokens"]


async def stream(port, body, path="/v1/completions", headers=None, result=None):
    """Sends a request and reads its stream to the end, into `result` where somebody watches that."""
    result = result or Stream()
    result.sent = time.monotonic()
    reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=1 << 22)
    try:
        writer.write(request_bytes(path, body, headers))
        await writer.drain()
        result.status, fields = await read_head(reader)
        result.headers = fields
        rest = b""
        async for data in read_chunks(reader, fields.get("transfer-encoding") == "chunked"):
            now = time.monotonic()
            rest += data
            if result.status != 200:
                continue
            *lines, rest = rest.split(b"\n")
            for line in lines:
                take_event(result, line.decode().rstrip("\r"), now)
        if result.status != 200:
            result.error = json.loads(rest).get("error", {})
    finally:
        result.ended = time.monotonic()
        writer.close()
    return result


async def streams(port, bodies, **options):
    return await asyncio.gather(*(stream(port, body, **options) for body in bodies))
