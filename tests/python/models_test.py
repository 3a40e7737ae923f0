"""Several models in one server: routed by name in every dialect, unloaded and loaded again while another is under load."""
import contextlib
import json
import sys
import tempfile
import threading

import serving
from serving import DEFAULT_MODEL, Server

PROMPT = "The capital of France is"
# So small a KV cache is in use as a whole early, and growth is a leak.
FLAGS = ("--ctx-size", 512, "--kv-tokens", 512)


@contextlib.contextmanager
def two_models(*more):
    """A server of the default model under two names, with a key for people and one for the admin."""
    serving.need_model()
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys:
        keys.write("root:admin-key\nuser:user-key\n")
        keys.flush()
        models = [word for name in ("a", "b") for word in ("-m", f"{name}={DEFAULT_MODEL}")]
        with Server(*models, *more, "--api-key-file", keys.name, "--admin-key", "root", *FLAGS, api_key="user-key") as server:
            yield server


def change(server, name, verb, key="admin-key"):
    """As curl -X POST does it: no body and no type."""
    status, _, body = server.request("POST", f"/v2/repository/models/{name}/{verb}", key=key)
    return status, body.decode()


def test_every_dialect_goes_by_the_name():
    with two_models("-m", "gone=/no/such/model.gguf") as server:
        assert [model["id"] for model in server.get("/v1/models")["data"]] == ["a", "b"]
        assert "model 'gone' could not be loaded" in server.text(), server.text()
        chat = {"messages": [{"role": "user", "content": "Hi"}], "max_tokens": 4}
        for path, body in (("/v1/chat/completions", chat), ("/v1/completions", {"prompt": PROMPT, "max_tokens": 4}),
                           ("/v1/messages", chat), ("/v1/responses", {"input": "Hi", "max_output_tokens": 4}),
                           ("/api/chat", {"messages": chat["messages"], "stream": False, "options": {"num_predict": 4}})):
            for name in ("b", "a"):
                assert server.post(path, body | {"model": name})["model"] == name, (path, name)
            for unknown, reason in (("c", "does not exist"), ("gone", "could not be loaded")):
                text = json.dumps(server.post(path, body | {"model": unknown}, status=404))
                assert reason in text and "This server has 'a', 'b'." in text, (path, text)
        # KServe's and Triton's paths, as plain HTTP
        assert server.request("GET", "/v2/health/live", key=None)[0] == 200
        assert server.request("GET", "/v2/health/ready", key=None)[0] == 200
        assert server.get("/v2")["extensions"] == ["generate", "model_repository"]
        model = server.get("/v2/models/b")
        assert model["name"] == "b" and model["inputs"][0]["name"] == "text_input", model
        assert server.get("/v2/models/b/ready")["ready"] is True
        assert server.request("GET", "/v2/models/gone/ready")[0] == 503
        states = {entry["name"]: entry["state"] for entry in json.loads(server.request("POST", "/v2/repository/index")[2])}
        assert states == {"a": "READY", "b": "READY", "gone": "UNAVAILABLE"}, states
        wanted = server.complete(PROMPT, 8, model="b")
        body = {"text_input": PROMPT, "parameters": {"max_tokens": 8, "temperature": 0, "ignore_eos": True}}
        answer = server.post("/v2/models/b/generate", body)
        assert answer["text_output"] == wanted and answer["model_name"] == "b", answer
        _, _, stream = server.request("POST", "/v2/models/b/generate_stream", body)
        events = [json.loads(line[6:]) for line in stream.decode().splitlines() if line.startswith("data: ")]
        assert "".join(event["text_output"] for event in events) == wanted, events
        assert events[-1]["details"]["finish_reason"] == "length", events[-1]


def test_one_unloads_and_loads_while_the_other_serves():
    with two_models() as server:
        wanted = server.complete(PROMPT, 24, model="a")
        assert server.complete(PROMPT, 24, model="b") == wanted
        assert change(server, "b", "unload", key="user-key")[0] == 403
        assert change(server, "b", "unload", key="wrong")[0] == 401
        over, wrong, served = threading.Event(), [], []

        def load():
            while not over.is_set():
                text = server.complete(PROMPT, 24, model="a")
                served.append(text)
                if text != wanted:
                    wrong.append(text)

        threads = [threading.Thread(target=load) for _ in range(2)]
        for thread in threads:
            thread.start()
        try:
            sizes = []
            for _ in range(3):
                assert change(server, "b", "unload") == (200, "{}")
                assert [model["id"] for model in server.get("/v1/models")["data"]] == ["a"]
                text = json.dumps(server.post("/v1/completions", {"model": "b", "prompt": "x"}, status=404))
                assert "The model 'b' is not loaded. This server has 'a'." in text, text
                sizes.append((server.status("VmRSS"), server.descriptors(), server.status("Threads")))
                assert change(server, "b", "load") == (200, "{}")
                assert server.complete(PROMPT, 24, model="b") == wanted
        finally:
            over.set()
            for thread in threads:
                thread.join()
        assert not wrong and served, wrong[:1]
        first, last = sizes[1], sizes[-1]
        assert last[0] < first[0] + 24 * 1024, f"kB, descriptors and threads with 'b' unloaded: {sizes}"
        assert last[1] <= first[1] + 4 and last[2] == first[2], sizes
        assert server.stop() == 0


def test_the_last_one_goes_and_comes():
    with two_models() as server:
        for name in ("a", "b"):
            assert change(server, name, "unload")[0] == 200
        assert server.get("/v1/models")["data"] == []
        text = json.dumps(server.post("/v1/completions", {"prompt": "x"}, status=404))
        assert "This server has none at the moment." in text, text
        assert server.request("GET", "/ready")[0] == 200 and server.request("GET", "/metrics")[0] == 200
        assert change(server, "b", "load")[0] == 200
        assert server.complete(PROMPT, 4, model="b")


def test_tritons_own_client_reads_health_and_metadata():
    http = serving.package("tritonclient.http")
    user, admin = {"Authorization": "Bearer user-key"}, {"Authorization": "Bearer admin-key"}
    with two_models() as server, http.InferenceServerClient(f"127.0.0.1:{server.port}") as client:
        assert client.is_server_live() and client.is_server_ready()
        assert client.get_server_metadata(headers=user)["name"] == "sluice"
        metadata = client.get_model_metadata("b", headers=user)
        assert metadata["name"] == "b" and metadata["outputs"][0]["datatype"] == "BYTES", metadata
        assert client.is_model_ready("b", headers=user)
        client.unload_model("b", headers=admin)
        assert not client.is_model_ready("b", headers=user) and client.is_model_ready("a", headers=user)
        states = {entry["name"]: entry["state"] for entry in client.get_model_repository_index(headers=user)}
        assert states == {"a": "READY", "b": "UNAVAILABLE"}, states
        client.load_model("b", headers=admin)
        assert client.is_model_ready("b", headers=user)
        wrong = serving.package("tritonclient.utils").InferenceServerException
        try:
            client.get_model_metadata("c", headers=user)
            raise AssertionError("metadata of a model that there is not")
        except wrong as error:
            assert "does not exist" in error.message(), error


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
