#!/usr/bin/env python3
"""What one client can do to the others and to the machine with a few requests: time to read them, and memory."""
import concurrent.futures
import contextlib
import http.client
import json
import random
import socket
import struct
import sys
import threading
import time

import serving
import timing
from serving import Server

ATTACKER = "127.0.0.2"
ANSWER, DRAIN = 2, 2  # seconds for others' smallest answer, and what SIGTERM leaves to requests
MASK = 2 ** 64 - 1
server = None


def colliding_keys(count):
    """Keys of 256 bytes that std::hash of libstdc++ gives one value: for each of 16 places there are two blocks with the
    same effect on its state."""
    multiplier = 0xC6A4A7935BD1E995
    inverse = pow(multiplier, -1, 2 ** 64)
    plain = bytes(byte for byte in range(0x23, 0x7F) if byte != 0x5C)
    dice = random.Random(1)

    def mix(word):
        return word ^ (word >> 47)

    def blocks(state):
        while True:
            first = struct.unpack("<Q", bytes(dice.choices(plain, k=8)))[0]
            middle = (state ^ (mix(first * multiplier & MASK) * multiplier & MASK)) * multiplier & MASK
            second = struct.pack("<Q", mix(middle * inverse & MASK) * inverse & MASK)
            if not second.strip(plain):
                yield (struct.pack("<Q", first) + second).decode()

    keys, state = [""], 0xC70F6907 ^ (256 * multiplier & MASK)
    for _ in range(16):
        found = blocks(state)
        pair = (next(found), next(found))
        keys = [key + block for key in keys for block in pair][:count]
        state = 0
    return keys


def words(count):
    return " information" * count


def post_from(target, address, path, body, timeout=600):
    connection = http.client.HTTPConnection("127.0.0.1", target.port, timeout=timeout, source_address=(address, 0))
    try:
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def one_token(target):
    """Seconds for the smallest answer."""
    started = time.monotonic()
    target.complete("Hello", 1)
    return time.monotonic() - started


CHAT = {"messages": [{"role": "user", "content": "Hello"}], "max_tokens": 1}


def attack_bodies():
    keys = {key: 0 for key in colliding_keys(60_000)}
    variables = {f"variable_{i}": i for i in range(60_000)}
    return {"keys": ("/v1/chat/completions", json.dumps(CHAT | {"metadata": keys})),
            "variables": ("/v1/chat/completions", json.dumps(CHAT | {"chat_template_kwargs": variables})),
            "text": ("/tokenize", json.dumps({"content": words(2_000_000)}))}


ATTACKS = attack_bodies()


@contextlib.contextmanager
def attackers(target, name, count=2):
    """So many of the attack's requests at once, from another address: futures of what is answered, None where nothing is."""
    path, body = ATTACKS[name]

    def attack():
        with contextlib.suppress(OSError, http.client.HTTPException):
            return post_from(target, ATTACKER, path, body)

    with concurrent.futures.ThreadPoolExecutor(count) as pool:
        yield [pool.submit(attack) for _ in range(count)]


@timing.repeated()
def check_others_are_answered(name, count=2):
    """What the attackers were answered."""
    one_token(server)
    with attackers(server, name, count) as answers:
        slowest = one_token(server)
        while not all(answer.done() for answer in answers):
            slowest = max(slowest, one_token(server))
    timing.in_time(slowest, ANSWER, f"one token while {name} were sent")
    return [answer.result() for answer in answers]


def test_others_are_answered_while_one_sends_keys_that_collide():
    for status, body in check_others_are_answered("keys"):
        assert status == 400 and b"more than 10000 keys" in body, (status, body[:300])


def test_others_are_answered_while_one_sends_template_variables():
    for status, body in check_others_are_answered("variables"):
        assert status == 400, (status, body[:300])


def test_others_are_answered_while_one_has_long_texts_tokenized():
    for status, body in check_others_are_answered("text", 4):
        assert status == 200 and len(json.loads(body)["tokens"]) == 2_000_000, (status, body[:300])


def test_keys_and_variables_have_limits():
    most = {f"k{i}": i for i in range(10_000)}
    server.post("/v1/chat/completions", CHAT | {"metadata": most})
    answer = server.post("/v1/chat/completions", CHAT | {"metadata": most | {"one more": 1}}, 400)
    assert "more than 10000 keys" in answer["error"]["message"], answer
    variables = {f"v{i}": i for i in range(256)}
    server.post("/v1/chat/completions", CHAT | {"chat_template_kwargs": variables})
    answer = server.post("/v1/chat/completions", CHAT | {"chat_template_kwargs": variables | {"one more": 1}}, 400)
    assert "257 variables; the limit is 256" in answer["error"]["message"], answer


@timing.repeated()
def check_the_server_ends_in_time(name):
    with Server("--shutdown-timeout", DRAIN) as other:
        with attackers(other, name, 4):
            time.sleep(0.3)
            started = time.monotonic()
            other.stop()
            seconds = time.monotonic() - started
        timing.in_time(seconds, DRAIN + 2, f"SIGTERM while {name} were sent")  # connections have 2 s for their last bytes


def test_the_server_ends_in_time_under_each_attack():
    for name in ATTACKS:
        check_the_server_ends_in_time(name)


def cpu_seconds_of(work):
    """What the server takes for some work, until it rests again."""
    before = server.cpu_seconds()
    work()
    deadline, last = time.monotonic() + 300, before
    while (now := server.cpu_seconds()) > last or server.metric("sluice_http_requests") > 1:
        assert time.monotonic() < deadline, "the server does not come to rest"
        last = now
        time.sleep(0.3)
    return now - before


def test_a_request_is_not_read_on_when_its_client_goes():
    path, body = ATTACKS["text"]

    def go_away():
        connection = http.client.HTTPConnection("127.0.0.1", server.port)
        connection.request("POST", path, body, {"Content-Type": "application/json"})
        time.sleep(0.1)
        # A reset: after an orderly end the client might still read.
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        connection.close()

    whole = cpu_seconds_of(lambda: post_from(server, ATTACKER, path, body))
    part = timing.least(lambda: cpu_seconds_of(go_away), 0.5 * whole)
    print(f"  {part:.2f} s of a processor for a client that goes, {whole:.2f} s for one that stays", flush=True)
    assert part < 0.5 * whole, "it works on for a client that is gone"


def test_reading_a_request_has_a_time_limit():
    with Server("--prepare-timeout", 0.2) as other:
        status, body = post_from(other, ATTACKER, *ATTACKS["text"])
        assert status == 408 and b"--prepare-timeout" in body, (status, body[:300])
        deadline = time.monotonic() + 60
        while other.request("POST", "/v1/completions", {"prompt": "Hello", "max_tokens": 1})[0] != 200:
            assert time.monotonic() < deadline, "a short request is not read in time"


class Growth:
    """The most that a server's own memory grows while it lives, in MB."""

    def __init__(self, target):
        self.target, self.before, self.most = target, target.status("RssAnon"), 0
        self.over = threading.Event()
        self.thread = threading.Thread(target=self.watch)

    def watch(self):
        while not self.over.is_set():
            self.most = max(self.most, self.target.status("RssAnon") - self.before)
            time.sleep(0.005)

    def __enter__(self):
        self.thread.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        self.thread.join()
        self.megabytes = self.most / 1024


def test_prompt_logprobs_take_little_memory():
    body = {"prompt": words(2200), "max_tokens": 1, "n": 32, "ignore_eos": True}
    assert len(json.dumps(body)) < 27_000
    with Server() as fresh:
        fresh.complete("Hello", 1)
        for fields in ({"prompt_logprobs": 20}, {"echo": True, "logprobs": 20}):
            with Growth(fresh) as growth:
                answer = fresh.post("/v1/completions", body | fields)
            print(f"{fields}: {growth.megabytes:.0f} MB", flush=True)
            assert growth.megabytes <= 150, f"{fields}: {growth.megabytes:.0f} MB"
            choices = answer["choices"]
            assert len(choices) == 32
            if "echo" in fields:
                assert all(len(choice["logprobs"]["tokens"]) == 2201 for choice in choices)
            else:
                assert [choice["prompt_logprobs"] is not None for choice in choices] == [True] + 31 * [False]
                assert len(choices[0]["prompt_logprobs"]) == 2200


def test_answers_have_a_budget():
    with Server("--answer-budget", 20_000) as small:
        body = {"prompt": words(200), "max_tokens": 1, "prompt_logprobs": 20}
        answer = small.post("/v1/completions", body, 503)
        assert answer["error"]["code"] == "server_is_overloaded", answer
        small.post("/v1/completions", body | {"prompt_logprobs": 1, "prompt": words(10)})
        small.wait_idle()
        assert small.metric("sluice_http_answer_bytes") == 0


def test_stop_strings_take_little_memory():
    def ask(target, fields):
        stop = [chr(97 + i) * 256 for i in range(16)]
        body = {"prompt": "Hello", "max_tokens": 3, "ignore_eos": True, "stream": True, "stop": stop} | fields
        return post_from(target, "127.0.0.1", "/v1/completions", json.dumps(body))[0]

    # So small a KV cache is in use as a whole before memory is looked at.
    with Server("--kv-tokens", 1024) as fresh, concurrent.futures.ThreadPoolExecutor(100) as pool:
        assert set(pool.map(lambda _: ask(fresh, {"stop": ["z"]}), range(100))) == {200}
        fresh.wait_idle()
        with Growth(fresh) as growth:
            assert set(pool.map(lambda _: ask(fresh, {}), range(100))) == {200}
        print(f"stop strings: {growth.megabytes:.0f} MB", flush=True)
        assert growth.megabytes <= 60, f"{growth.megabytes:.0f} MB"


def test_freed_memory_goes_back():
    with Server() as fresh:
        fresh.complete("Hello", 1)
        before = fresh.status("RssAnon")
        # Several times, so that requests begin and end at any time between two looks at memory.
        for _ in range(3):
            with Growth(fresh) as growth:
                for _ in range(2):
                    post_from(fresh, ATTACKER, *ATTACKS["text"])
            assert growth.megabytes > 60, "nothing to give back"
            deadline = time.monotonic() + 60
            while (left := (fresh.status("RssAnon") - before) / 1024) > 30 and time.monotonic() < deadline:
                time.sleep(0.2)
            print(f"freed memory: {growth.megabytes:.0f} MB at the most, {left:.0f} MB afterwards", flush=True)
            assert left <= 30, f"{left:.0f} of {growth.megabytes:.0f} MB are still held"


if __name__ == "__main__":
    sys.exit(serving.run_module(sys.modules[__name__]))
