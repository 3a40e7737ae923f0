"""The router in front of real servers of the default model: prefixes decide, keys are passed on, replicas die and come."""
import contextlib
import json
import subprocess
import sys
import tempfile
import threading
import time

import serving
from serving import BINARY, DEFAULT_MODEL, Server

FLAGS = ("--ctx-size", 1024, "--kv-tokens", 4096, "--threads", 1)


class Router(Server):
    """The program as router, asked as a server is."""

    def __init__(self, servers, *arguments, api_key=None):
        self.key = api_key
        self.log = tempfile.NamedTemporaryFile("w+", prefix="sluice-route-", suffix=".log")
        replicas = [word for server in servers for word in ("--replica", server.url)]
        command = [BINARY, "route", "--port", "0", "-m", DEFAULT_MODEL, "--poll-interval", "0.05", *replicas, *arguments]
        self.process = subprocess.Popen(list(map(str, command)), stdout=self.log, stderr=subprocess.STDOUT,
                                        stdin=subprocess.DEVNULL)
        self.port = self._wait_for_port()
        self._wait_until_ready()
        self.url = f"http://127.0.0.1:{self.port}"
        self.model = self.get("/v1/models")["data"][0]["id"]

    def wait_for(self, condition, seconds=60):
        deadline = time.monotonic() + seconds
        while not condition(self.get("/replicas")["replicas"]):
            assert time.monotonic() < deadline, self.get("/replicas")
            time.sleep(0.02)


@contextlib.contextmanager
def fleet(count, *arguments, api_key=None, router=()):
    serving.need_model()
    with contextlib.ExitStack() as stack:
        servers = [stack.enter_context(Server(*FLAGS, *arguments, api_key=api_key)) for _ in range(count)]
        router = stack.enter_context(Router(servers, *router, api_key=api_key))
        router.wait_for(lambda replicas: all(replica["healthy"] for replica in replicas))
        yield router, servers


def conversation(name, turns):
    """Messages of a conversation with a long beginning of its own."""
    system = f"You are {name}. " + " ".join(f"{name} likes the number {i}." for i in range(12))
    messages = [{"role": "system", "content": system}]
    for i in range(turns):
        messages += [{"role": "user", "content": f"Question {i} of {name}?"}, {"role": "assistant", "content": f"Answer {i}."}]
    return messages[:-1]


def cached_share(router, names, turns):
    prompt = cached = 0
    for turn in range(1, turns + 1):
        for name in names:
            usage = router.post("/v1/chat/completions", {"model": router.model, "messages": conversation(name, turn),
                                                         "max_tokens": 2})["usage"]
            if turn > 1:
                prompt += usage["prompt_tokens"]
                cached += usage["prompt_tokens_details"]["cached_tokens"]
        time.sleep(0.15)  # for a report
    return cached / prompt


def test_conversations_stay_where_their_prefix_is():
    with fleet(2) as (router, servers):
        direct = servers[0].complete("The capital of France is", 8)
        assert router.complete("The capital of France is", 8) == direct
        share = cached_share(router, ["Ann", "Bob", "Cid", "Dan"], 3)
        assert share > 0.7, f"later turns found {share:.2f} of their prompts cached"
        served = [server.metric("sluice_prompt_tokens_total") for server in servers]
        assert min(served) > 0, f"one replica got nothing: {served}"
        expected = router.metric("sluice_route_replica_cached_tokens_total")
        assert expected > 0 and router.metric("sluice_route_replica_blocks") > 0


def test_keys_are_passed_on_and_keep_prefixes_apart():
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("ann:one\nbob:two\n")
        keys.flush()
        with fleet(1, "--api-key-file", keys.name, api_key="two", router=("--replica-key-file", keys.name)) as (router, _):
            assert router.request("GET", "/v1/models", key=None)[0] == 401
            body = {"model": router.model, "messages": conversation("Eve", 1), "max_tokens": 2}
            router.post("/v1/chat/completions", body)
            before = router.metric("sluice_route_replica_cached_tokens_total")
            router.post("/v1/chat/completions", body)
            assert router.metric("sluice_route_replica_cached_tokens_total") > before + 50
            status, _, answer = router.request("POST", "/v1/chat/completions", body, key="one")
            assert status == 200 and json.loads(answer)["usage"]["prompt_tokens_details"]["cached_tokens"] == 0


def test_a_killed_replica_breaks_no_promise():
    with fleet(2) as (router, servers):
        results = []

        def stream():
            body = {"model": router.model, "prompt": "Once", "max_tokens": 400, "ignore_eos": True, "stream": True}
            try:
                _, _, text = router.request("POST", "/v1/completions", body)
                results.append("whole" if b"data: [DONE]" in text else "cut but ended")
            except Exception as error:
                results.append(type(error).__name__)

        threads = [threading.Thread(target=stream) for _ in range(6)]
        for thread in threads:
            thread.start()
        router.wait_for(lambda replicas: all(replica["running"] >= 2 for replica in replicas))
        servers[0].process.kill()
        for thread in threads:
            thread.join(300)
        assert len(results) == 6 and "cut but ended" not in results, results
        assert results.count("whole") >= 2, results
        for _ in range(4):
            assert router.complete("The capital of France is", 2)
        router.wait_for(lambda replicas: [replica["healthy"] for replica in replicas] == [False, True])
        assert router.metric("sluice_route_broken_total") + router.metric("sluice_route_retries_total") >= 1
        assert router.stop() == 0


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
