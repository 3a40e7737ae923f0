"""One address attacks, another one asks for a token: it is answered soon, and SIGTERM still ends the server in time.

Clients are told apart by their addresses: 127.0.0.2 attacks, 127.0.0.3 asks."""
import contextlib
import http.client
import json
import sys
import threading
import time

import serving
import timing
from serving import Server

ATTACKER, QUIET = "127.0.0.2", "127.0.0.3"
ANSWER, DRAIN = 2, 3  # seconds for the quiet client's answer, and what SIGTERM leaves to requests


def ask(server, address, body, headers=None, timeout=120):
    """Status, headers and JSON of an answer to a client at this address."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=timeout, source_address=(address, 0))
    with contextlib.closing(connection):
        connection.request("POST", "/v1/completions", json.dumps({"model": server.model} | body),
                           {"Content-Type": "application/json"} | (headers or {}))
        answer = connection.getresponse()
        return answer.status, dict(answer.getheaders()), json.loads(answer.read())


def one_token(server):
    """Seconds until the quiet client has its token."""
    start = time.monotonic()
    status, _, answer = ask(server, QUIET, {"prompt": "The capital of France is", "max_tokens": 1})
    assert status == 200, (status, answer)
    return time.monotonic() - start


class Attack(threading.Thread):
    """Sends bodies at once, each by a thread of its own, and does not care what comes of them."""

    def __init__(self, server, *bodies):
        super().__init__(daemon=True)
        self.server, self.bodies = server, bodies
        self.statuses = []

    def run(self):
        threads = [threading.Thread(target=self.send, args=(body,), daemon=True) for body in self.bodies]
        for thread in threads:
            thread.start()
            time.sleep(0.2)
        for thread in threads:
            thread.join()

    def send(self, body):
        with contextlib.suppress(OSError, http.client.HTTPException, ValueError):
            self.statuses.append(ask(self.server, ATTACKER, body)[0])


def tokens(count, first=0):
    """A prompt of so many tokens that no other one begins like."""
    return [1000 + (first * 7919 + i * 31) % 20000 for i in range(count)]


@timing.repeated()
def attacked(*bodies):
    with Server("--shutdown-timeout", DRAIN) as server:
        quiet = sorted(one_token(server) for _ in range(3))[1]
        attack = Attack(server, *bodies)
        attack.start()
        server.wait_until("sluice_requests_running", 1)
        time.sleep(1)
        taken = []
        for _ in range(5):
            taken.append(one_token(server))
            time.sleep(0.2)
        busy = server.metric("sluice_requests_running")
        start = time.monotonic()
        code = server.stop(DRAIN + 60)
        ended = time.monotonic() - start
        assert code == 0, code
        assert busy >= 1, f"the attack was over before it was measured: {attack.statuses}"
        print(f"  quiet {quiet:.3f} s, attacked {min(taken):.3f} to {max(taken):.3f} s, ended after {ended:.1f} s")
        timing.in_time(max(taken), ANSWER, "one token under attack")
        # The step that runs when the time is over ends first, and connections have 2 s for their last bytes.
        timing.in_time(ended, DRAIN + 4, "SIGTERM under attack")


LONG = {"max_tokens": 6000, "ignore_eos": True, "temperature": 0.8}


def test_many_choices():
    attacked(*[{"prompt": "Tell me a story.", "n": 32} | LONG] * 2)


def test_a_wide_request_behind_a_stream():
    stream = {"prompt": "Tell me a long story.", "stream": True} | LONG
    attacked(stream, {"prompt": "Tell me a story.", "n": 32} | LONG, {"prompt": "Tell me more.", "n": 32} | LONG)


def test_long_prompts():
    attacked(*[{"prompt": tokens(4000, i), "max_tokens": 3000, "ignore_eos": True} for i in range(4)])


def test_a_full_queue():
    """1,024 prompts, which is what may wait."""
    several = [{"prompt": [tokens(12, 128 * i + j) for j in range(128)], "max_tokens": 400, "ignore_eos": True}
               for i in range(9)]
    attacked(*several)


def test_deadlines():
    """A deadline that can be met is, one that cannot is refused at once, one that is no number is a fault."""
    short = {"prompt": "Hello", "max_tokens": 1}
    with Server() as server:
        for _ in range(3):
            one_token(server)
        ask(server, QUIET, {"prompt": tokens(200, 1), "max_tokens": 1})
        assert ask(server, QUIET, short, {"x-request-deadline": "20"})[0] == 200
        for text in ("soon", "", "-1", "1e3", "nan", "1.", ".5", "1 s", "0x1"):
            status, _, answer = ask(server, QUIET, short, {"x-request-deadline": text})
            assert status == 400 and answer["error"]["code"] == "invalid_deadline", (text, status, answer)
        status, headers, answer = ask(server, QUIET, {"prompt": tokens(4000, 2), "max_tokens": 1},
                                      {"x-request-deadline": "0.05"})
        assert status == 429 and answer["error"]["code"] == "deadline_unmet", (status, answer)
        assert int(headers["retry-after"]) >= 1, headers
        assert server.metric("sluice_prompt_tokens_total") < 4000, "it was refused after its prompt had been run"
    with Server("--target-ttft", "0.05") as strict:
        ask(strict, QUIET, {"prompt": tokens(100, 3), "max_tokens": 1}, {"x-request-deadline": "100"})
        assert ask(strict, QUIET, {"prompt": tokens(4000, 4), "max_tokens": 1})[0] == 429
        assert ask(strict, QUIET, {"prompt": tokens(100, 5), "max_tokens": 1}, {"x-request-deadline": "100"})[0] == 200


def test_limits_count_sequences_and_tokens():
    wide = {"prompt": ["a", "b"], "n": 3, "max_tokens": 1}
    with Server("--key-concurrency", "5") as server:
        status, headers, answer = ask(server, QUIET, wide)
        assert status == 429 and "6" not in headers.get("retry-after", "1"), (status, answer)
        assert ask(server, QUIET, wide | {"n": 2})[0] == 200
        assert ask(server, QUIET, wide | {"n": 2})[0] == 200, "what has ended does not count"
    with Server("--key-tokens-per-minute", "100") as server:
        assert ask(server, QUIET, {"prompt": tokens(90), "max_tokens": 20, "ignore_eos": True})[0] == 200
        status, headers, _ = ask(server, QUIET, {"prompt": "a", "max_tokens": 1})
        assert status == 429 and int(headers["retry-after"]) >= 1, (status, headers)
        assert ask(server, ATTACKER, {"prompt": "a", "max_tokens": 1})[0] == 200


def test_weights():
    """A key of weight 3 has about three times the tokens of one of weight 1 while both want all they can get."""
    keys = {"big": "big-key-0123456789", "small": "small-key-0123456789"}
    arguments = [word for name, key in keys.items() for word in ("--api-key", f"{name}:{key}")]
    with Server(*arguments, "--key-weight", "big=3", "--max-seqs", "8", api_key=keys["big"]) as server:
        made = {name: 0 for name in keys}

        def load(name):
            while sum(made.values()) < 96:
                status, _, answer = ask(server, QUIET, {"prompt": "Once upon a time", "max_tokens": 12, "ignore_eos": True},
                                        {"Authorization": f"Bearer {keys[name]}"})
                assert status == 200, answer
                if sum(made.values()) < 96:  # after that, what is left is answered to both alike
                    made[name] += 1
        threads = [threading.Thread(target=load, args=(name,)) for name in keys for _ in range(12)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        print(f"  answers to each key: {made}")
        assert 2 <= made["big"] / made["small"] <= 4.5, made


if __name__ == "__main__":
    try:
        serving.need_model()
    except serving.Skip as reason:
        sys.exit(print(f"{reason}\n0 passed, 0 failed, 1 skipped"))
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
