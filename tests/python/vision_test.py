#!/usr/bin/env python3
"""Pictures in requests of each dialect to running servers of miniature models with vision towers, over real sockets.

SLUICE_BINARY names the program."""
import base64
import http.server
import json
import subprocess
import sys
import threading
import time

import serving

DATA = serving.ROOT / "tests/golden/data/vision"
server = None


def golden(family):
    return json.loads((DATA / family / "golden.json").read_text())


def ask(body):
    return server.post("/v1/chat/completions", {"temperature": 0, "max_tokens": 4, "ignore_eos": True} | body)


def talk(image):
    return {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": f"data:image/png;base64,{image}"}},
        {"type": "text", "text": "What is it?"}]}]}


def test_a_picture_asked_about_twice_costs_its_tower_once():
    case = golden("qwen3_vl")
    first = ask(talk(case["image"]))
    assert first["usage"]["prompt_tokens"] == len(case["prompt"]), first["usage"]
    encoded = server.metric("sluice_pictures_encoded_total")
    again = ask(talk(case["image"]))
    assert again["choices"][0]["message"] == first["choices"][0]["message"], (first, again)
    assert again["usage"]["prompt_tokens_details"]["cached_tokens"] > len(case["prompt"]) // 2, again["usage"]
    assert server.metric("sluice_pictures_encoded_total") == encoded
    # Another text before the picture has another prefix, but not another picture.
    body = talk(case["image"])
    body["messages"].insert(0, {"role": "system", "content": "Be brief."})
    ask(body)
    assert server.metric("sluice_pictures_encoded_total") == encoded
    assert server.metric("sluice_pictures_reused_total") > 0


def test_every_dialect_says_the_same_of_a_picture():
    case = golden("qwen3_vl")
    image = case["image"]
    wanted = ask(talk(image))["choices"][0]["message"]["content"]
    made = server.post("/v1/messages", {"model": server.model, "max_tokens": 4, "temperature": 0, "messages": [
        {"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": image}},
            {"type": "text", "text": "What is it?"}]}]})
    assert made["usage"]["input_tokens"] + made["usage"].get("cache_read_input_tokens", 0) == len(case["prompt"]), made
    made = server.post("/v1/messages/count_tokens", {"model": server.model, "messages": [
        {"role": "user", "content": [
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": image}},
            {"type": "text", "text": "What is it?"}]}]})
    assert made["input_tokens"] == len(case["prompt"]), made
    made = server.post("/api/chat", {"model": server.model, "stream": False, "options": {"temperature": 0, "num_predict": 4},
                                     "messages": [{"role": "user", "content": "What is it?", "images": [image]}]})
    assert made["prompt_eval_count"] > 0 and wanted.startswith(made["message"]["content"]), (made, wanted)
    made = server.post("/api/generate", {"model": server.model, "stream": False, "prompt": "What is it?", "images": [image],
                                         "options": {"temperature": 0, "num_predict": 4}})
    assert wanted.startswith(made["response"]), (made, wanted)
    made = server.post("/v1/responses", {"model": server.model, "temperature": 0, "max_output_tokens": 16, "input": [
        {"role": "user", "content": [{"type": "input_image", "image_url": f"data:image/png;base64,{image}"},
                                     {"type": "input_text", "text": "What is it?"}]}]})
    assert made["usage"]["input_tokens"] == len(case["prompt"]), made["usage"]


def test_what_is_no_picture_is_refused():
    noise = base64.b64encode(b"no picture at all").decode()
    for image in ("", "****", noise):
        status, _, body = server.request("POST", "/v1/chat/completions", talk(image))
        assert status == 400 and b"error" in body, (status, body)
    status, _, body = server.request("POST", "/v1/chat/completions", {"messages": [{"role": "user", "content": [
        {"type": "image_url", "image_url": {"url": "http://127.0.0.1/cat.png"}}]}]})
    assert status == 400 and b"--allow-image-urls" in body, (status, body)


class Shop(http.server.BaseHTTPRequestHandler):
    """A site with a picture, ways to it, and what a hostile site would answer."""
    def do_GET(self):
        picture = base64.b64decode(golden("qwen3_vl")["image"])
        if self.path == "/cat.png":
            self.answer(200, picture)
        elif self.path == "/moved":
            self.answer(302, b"", "/cat.png")
        elif self.path == "/inside":
            self.answer(302, b"", f"http://127.0.0.2:{self.server.server_port}/cat.png")
        elif self.path == "/round":
            self.answer(302, b"", "/round")
        elif self.path == "/endless":
            self.answer(200, None)
        elif self.path == "/slow":
            time.sleep(90)
        else:
            self.answer(404, b"no")

    def answer(self, status, body, location=None):
        self.send_response(status)
        if location:
            self.send_header("Location", location)
        if body is not None:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        try:
            for _ in range(1 if body is not None else 400):
                self.wfile.write(body if body is not None else bytes(1 << 16))
        except OSError:  # the server had enough
            pass

    def log_message(self, *_):
        pass


def test_pictures_are_fetched_where_that_is_allowed():
    global server
    shop = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Shop)
    threading.Thread(target=shop.serve_forever, daemon=True).start()
    site = f"http://127.0.0.1:{shop.server_port}"
    ours, case = server, golden("qwen3_vl")

    def talk_of(url):
        body = talk("")
        body["messages"][0]["content"][0]["image_url"]["url"] = url
        return body | {"temperature": 0, "max_tokens": 4, "ignore_eos": True}

    def refusal(url):
        status, _, body = server.request("POST", "/v1/chat/completions", talk_of(url))
        assert status == 400, (url, status, body)
        return json.loads(body)["error"]["message"]

    wanted = ask(talk(case["image"]))["choices"][0]["message"]
    arguments = ("--model", DATA / "qwen3_vl", "--device", "cpu", "--kv-tokens", "2048", "--allow-image-urls")
    try:
        with serving.Server(*arguments, "--image-url-network", "127.0.0.1/32") as server:
            for path in ("/cat.png", "/moved"):
                made = server.post("/v1/chat/completions", talk_of(site + path))
                assert made["choices"][0]["message"] == wanted, made
            made = server.post("/v1/messages", {"model": server.model, "max_tokens": 4, "messages": [
                {"role": "user", "content": [{"type": "image", "source": {"type": "url", "url": site + "/cat.png"}}]}]})
            assert made["usage"]["input_tokens"] > 10, made
            assert "127.0.0.2, which is not a public one" in refusal(site + "/inside")
            assert "redirected more than 3 times" in refusal(site + "/round")
            # 20 MiB may take longer than the 10 s that there are, on a machine that others use.
            assert any("more than 20971520 bytes" in refusal(site + "/endless") for _ in range(5))
            assert "HTTP status 404" in refusal(site + "/none")
            begun = time.monotonic()
            assert "did not come within 10 s" in refusal(site + "/slow")
            assert time.monotonic() - begun < 60
        with serving.Server(*arguments) as server:
            assert "not a public one" in refusal(site + "/cat.png")
    finally:
        server = ours
        shop.shutdown()


def test_run_takes_pictures_from_files():
    picture = DATA / "pictures/turned.jpg"
    command = [serving.BINARY, "run", str(DATA / "gemma3"), "What is it?", "--image", str(picture), "-n", "4", "--temp", "0"]
    made = subprocess.run(command, capture_output=True, timeout=120, check=False)
    assert made.returncode == 0 and b"prompt 40 tokens" in made.stderr, (made.returncode, made.stderr[-400:])
    made = subprocess.run(command[:5] + [str(DATA / "gemma3/config.json")], capture_output=True, timeout=120, check=False)
    assert made.returncode != 0 and b"neither JPEG" in made.stderr, (made.returncode, made.stderr[-400:])


if __name__ == "__main__":
    with serving.Server("--model", DATA / "qwen3_vl", "--device", "cpu", "--kv-tokens", "2048") as server:
        code = serving.run_tests(serving.tests_of(sys.modules[__name__]))
    sys.exit(code)
