#!/usr/bin/env python3
"""Streams and the requests that come beside them, for programs that measure what the latter cost the former: pictures.py,
constrained.py. As a program, `streams.py URL` is the sender that Sender starts. Python's standard library is all it needs."""
import http.client
import json
import os
import selectors
import socket
import subprocess
import sys
import threading
import time
from urllib.parse import urlsplit


class Client:
    def __init__(self, url):
        self.url = url
        self.host = urlsplit(url).netloc

    def post(self, body):
        connection = http.client.HTTPConnection(self.host, timeout=600)
        connection.request("POST", "/v1/chat/completions", json.dumps(body), {"Content-Type": "application/json"})
        return connection, connection.getresponse()

    def whole(self, body):
        connection, answer = self.post(body)
        answer.read()
        connection.close()
        return answer.status

    def gaps(self, body, begin, stop):
        """Seconds between the events of streams; one that ends is begun anew. A gap counts where it begins between `begin` and
        `stop`, and then whole: a stream that is kept waiting beyond the end was kept waiting within."""
        gaps = []
        while not stop.is_set():
            connection, answer = self.post(body | {"stream": True})
            last, counts = None, False
            for line in answer:
                if not line.startswith(b"data: {"):
                    continue
                now = time.monotonic()
                if counts:
                    gaps.append(now - last)
                last, counts = now, begin.is_set() and not stop.is_set()
                if stop.is_set():
                    break
            connection.close()
        return gaps


def quantile(gaps, share):
    gaps = sorted(gaps)
    return gaps[min(len(gaps) - 1, int(share * len(gaps)))] if gaps else 0


class Sender:
    """A program of its own that sends requests one behind the other without waiting for answers. It gives way to the server and
    to whoever reads the streams."""

    def __init__(self, url, bodies):
        self.told = []  # of each answer: number of the request, status (0: none), message of an error, tokens of the prompt
        self.process = subprocess.Popen([sys.executable, __file__, url], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.process.stdin.write(json.dumps(bodies) + "\n")
        self.process.stdin.flush()
        self.process.stdout.readline()  # it has read them
        self.reader = threading.Thread(target=self._read, daemon=True)

    def _read(self):
        for line in self.process.stdout:
            self.told.append(json.loads(line))

    def send(self, seconds=None):
        """What the requests were told, when all were or so many seconds are over."""
        self.process.stdin.write("\n")
        self.process.stdin.flush()
        self.reader.start()
        self.reader.join(seconds)
        return list(self.told)

    def close(self):
        """Ends the requests that were not answered."""
        self.process.kill()
        self.process.wait()


def told_by(number, answer):
    head, _, text = answer.partition(b"\r\n\r\n")
    if not head:
        return [number, 0, "closed without an answer", 0]
    try:
        found = json.loads(text[text.find(b"{"):text.rfind(b"}") + 1] or b"{}")
    except ValueError:
        found = {}
    return [number, int(head.split()[1]), (found.get("error") or {}).get("message", ""), (found.get("usage") or {}).get("prompt_tokens", 0)]


def send_all(host, bodies, tell):
    """Each is sent as soon as it has its connection: the server closes those that say nothing for 10 s (--header-timeout)."""
    name, port = host.split(":")
    answers, open_ones = {}, selectors.DefaultSelector()

    def read(timeout):
        for key, _ in open_ones.select(timeout):
            try:
                part = key.fileobj.recv(1 << 16)
                answers[key.data] += part
                if part:
                    continue
                tell(told_by(key.data, answers[key.data]))
            except OSError as error:
                tell([key.data, 0, f"{type(error).__name__}: {error}", 0])
            open_ones.unregister(key.fileobj)
            key.fileobj.close()

    for number, body in enumerate(bodies):
        try:
            connection = socket.create_connection((name, int(port)), timeout=600)
            connection.sendall(f"POST /v1/chat/completions HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\nContent-Type: application/json\r\n"
                               f"Content-Length: {len(body)}\r\n\r\n".encode() + body)
        except OSError as error:
            tell([number, 0, f"{type(error).__name__}: {error}", 0])
            continue
        answers[number] = b""
        open_ones.register(connection, selectors.EVENT_READ, number)
        read(0)
    while open_ones.get_map():
        read(None)


def main():
    bodies = [json.dumps(body).encode() for body in json.loads(sys.stdin.readline())]
    os.nice(19)
    print("ready", flush=True)
    sys.stdin.readline()
    send_all(urlsplit(sys.argv[1]).netloc, bodies, lambda told: print(json.dumps(told), flush=True))


if __name__ == "__main__":
    main()
