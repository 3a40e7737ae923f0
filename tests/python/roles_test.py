"""Prefill and decode in servers of their own: the same tokens as in one, whoever dies, and no blocks of another model."""
import json
import shutil
import socket
import struct
import sys
import tempfile
import threading
import time
from pathlib import Path

import serving
from route_test import Router
from serving import DEFAULT_MODEL, Server

FLAGS = ("--ctx-size", 2048, "--kv-tokens", 8192, "--threads", 1)
TYPE = "application/x-sluice-kv"


def story(number, sentences=30):
    """17 tokens a sentence."""
    return f"Story {number}. " + " ".join(f"On day {i} of year {number} the boat went {i} miles." for i in range(sentences))


def decoder(prefill, *arguments, **options):
    """One that is patient: a machine may stall."""
    return Server(*FLAGS, "--role", "decode", "--prefill-server", prefill.url, "--prefill-server-timeout", 60, *arguments, **options)


def way(server, name):
    return server.metrics()[f'sluice_prefills_total{{way="{name}"}}']


def test_tokens_are_those_of_one_process():
    serving.need_model()
    for kv_type in ("f16", "int8"):
        flags = ("--kv-type", kv_type)
        with Server(*FLAGS, *flags) as one, Server(*FLAGS, *flags, "--role", "prefill") as prefill, \
                decoder(prefill, *flags) as decode:
            for number in range(3):
                assert decode.complete(story(number), 24) == one.complete(story(number), 24)
            assert way(decode, "fetched") == 3 and way(decode, "failed") == 0 and way(prefill, "served") == 3
            imported, run = decode.metric("sluice_blocks_imported_total"), decode.metric("sluice_run_tokens_total")
            assert imported > 3 * 28, f"{imported} blocks came"
            assert run < 3 * (24 + 33), f"the decoding server ran {run} tokens itself"
            # Of a conversation that goes on only what is new is asked for, and little is computed at once.
            decode.complete(story(0) + " The end.", 2)
            assert way(decode, "fetched") == 3
            longer = decode.complete(story(0) + story(7, 15), 8)
            assert longer == one.complete(story(0) + story(7, 15), 8)
            assert way(decode, "fetched") == 4
            assert decode.metric("sluice_blocks_imported_total") < imported + 25


def miniature(name, folder):
    """Of a golden miniature: for long prompts, with a tokenizer of a letter for each token."""
    target = Path(folder, name)
    shutil.copytree(serving.ROOT / "tests/golden/data" / name, target)
    config = json.loads((target / "config.json").read_text())
    (target / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 2048}))
    vocab = {chr(33 + i): i for i in range(config["vocab_size"])}
    (target / "tokenizer.json").write_text(json.dumps({
        "version": "1.0", "added_tokens": [], "normalizer": None, "post_processor": None,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "decoder": {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False},
        "model": {"type": "BPE", "vocab": vocab, "merges": []}}))
    return target


def test_states_come_behind_the_blocks():
    """Linear attention, state spaces beside attention, and nothing but states."""
    for name in ("qwen3_next", "zamba2", "mamba2"):
        with tempfile.TemporaryDirectory() as folder:
            flags = ("-m", miniature(name, folder), *FLAGS)
            prompts = [[3 + (i * i + 7 * number) % 50 for i in range(300 + 16 * number)] for number in range(3)]
            with Server(*flags) as one, Server(*flags, "--role", "prefill", "--max-step-tokens", 64) as prefill, \
                    Server(*flags, "--role", "decode", "--prefill-server", prefill.url, "--prefill-server-timeout", 60) as decode:
                for prompt in prompts:
                    assert decode.complete(prompt, 24) == one.complete(prompt, 24), name
                assert way(decode, "fetched") == 3 and way(decode, "failed") == 0, decode.text()[-2000:]
                run = decode.metric("sluice_run_tokens_total")
                assert run < 3 * (24 + 17), f"{name}: the decoding server ran {run} tokens itself"
                # The prompt is there, and of a longer one what is new is asked for.
                decode.complete(prompts[0], 4)
                assert way(decode, "fetched") == 3
                longer = prompts[0] + prompts[1][:200]
                assert decode.complete(longer, 8) == one.complete(longer, 8)
                assert way(decode, "fetched") == 4
                assert decode.metric("sluice_run_tokens_total") < run + 4 + 17 + 8 + 17


def kill_while_it_prefills(one):
    """Whether the kill came before the prompts had been prefilled."""
    with Server(*FLAGS, "--role", "prefill", "--max-step-tokens", 64) as prefill, decoder(prefill) as decode:
        answers = {}
        long = [story(number, 110) for number in range(2)]

        def ask(prompt):
            answers[prompt] = decode.complete(prompt, 16)

        threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in long]
        for thread in threads:
            thread.start()
        decode.wait_until("sluice_blocks_imported_total", 8)
        prefill.process.kill()
        for thread in threads:
            thread.join(300)
        assert answers == {prompt: one.complete(prompt, 16) for prompt in long}
        if way(decode, "fetched") == len(long):
            return False
        assert way(decode, "failed") >= 1 and "prefilling here" in decode.text()
        start = time.monotonic()
        assert decode.complete(story(9), 4) == one.complete(story(9), 4)
        assert time.monotonic() - start < 30
        return True


def test_a_prefill_server_that_dies_is_done_without():
    serving.need_model()
    with Server(*FLAGS) as one:
        assert any(kill_while_it_prefills(one) for _ in range(5)), "the kill came too late"


def test_a_prefill_server_that_hangs_is_waited_for_as_long_as_allowed():
    serving.need_model()
    with socket.create_server(("127.0.0.1", 0)) as silent, Server(*FLAGS) as one, \
            Server(*FLAGS, "--role", "decode", "--prefill-server", f"http://127.0.0.1:{silent.getsockname()[1]}",
                   "--prefill-server-timeout", 1) as decode:
        start = time.monotonic()
        assert decode.complete(story(1), 4) == one.complete(story(1), 4)
        assert 1 <= time.monotonic() - start < 120 and "sent nothing for 1 s" in decode.text()


def test_blocks_of_another_model_are_refused():
    serving.need_model()
    with tempfile.TemporaryDirectory() as folder, Server(*FLAGS) as one:
        weights = bytearray(DEFAULT_MODEL.read_bytes())
        weights[-64:] = bytes(64)  # of the last tensor
        other = Path(folder, "other.gguf")
        other.write_bytes(weights)
        for flags in (("-m", other), ("-m", DEFAULT_MODEL, "--kv-type", "int8"),
                      ("-m", DEFAULT_MODEL, "--block-size", 32)):
            with Server(*FLAGS, *flags, "--role", "prefill") as prefill, decoder(prefill) as decode:
                assert decode.complete(story(2), 8) == one.complete(story(2), 8)
                assert way(decode, "failed") == 1 and decode.metric("sluice_blocks_imported_total") == 0
                assert "the model (weights/KV form/KV type/block size) is" in decode.text(), decode.text()[-2000:]


def order(tokens, version=2, first=0):
    return (struct.pack("<4sI", b"SLKO", version) + struct.pack("<I", 1) + b"m" + struct.pack("<II", 16, 1)
            + struct.pack("<QII", 64, 0, 0) + struct.pack("<I", 0) + struct.pack("<II", first, len(tokens))
            + struct.pack(f"<{len(tokens)}i", *tokens))


def test_the_endpoint_is_for_the_operator():
    serving.need_model()
    with Server(*FLAGS) as plain:
        assert plain.request("POST", "/kv/prefill", order([1] * 99), {"Content-Type": TYPE})[0] == 404
        assert plain.get("/kv/prefixes")["role"] == "both"
    with tempfile.NamedTemporaryFile("w", suffix=".keys") as keys, tempfile.NamedTemporaryFile("w", suffix=".key") as own:
        keys.write("ops:one\nann:two\n")
        own.write("ops:one\n")
        keys.flush()
        own.flush()
        secured = ("--api-key-file", keys.name, "--cache-isolation", "none")
        with Server(*FLAGS, *secured, "--admin-key", "ops", "--role", "prefill", api_key="two") as prefill:
            def ask(body, key="one", kind=TYPE):
                status, _, answer = prefill.request("POST", "/kv/prefill", body, {"Content-Type": kind}, key=key)
                return status, json.loads(answer)["error"]["message"] if status != 200 else answer

            assert ask(order([1] * 99), key="two")[0] == 403
            assert ask(order([1] * 99), key=None)[0] == 401
            assert ask(order([1] * 99), kind="application/json")[0] == 415
            status, message = ask(order([1] * 99))
            assert status == 409 and "here and m there" in message, message
            assert ask(order([1] * 99, version=1)) == (400, "KV handover: version 1 is asked for, this server has version 2")
            assert "block 9 is asked for, the tokens have 6" in ask(order([1] * 99, first=9))[1]
            assert "'tokens'" in ask(order([1] * 99)[:40])[1] or "cut off" in ask(order([1] * 99)[:40])[1]
            with decoder(prefill, "--prefill-server-key-file", own.name) as decode:
                decode.complete(story(3), 4)
                assert way(decode, "fetched") == 1


def test_the_router_pairs_them():
    serving.need_model()
    with Server(*FLAGS) as one, Server(*FLAGS, "--role", "prefill") as first, Server(*FLAGS, "--role", "prefill") as second:
        both = ("--prefill-server", second.url)
        with decoder(first, *both) as a, decoder(first, *both) as b, Router([first, second, a, b]) as router:
            router.wait_for(lambda replicas: [replica["role"] for replica in replicas]
                            == ["prefill", "prefill", "decode", "decode"])
            prompts = [story(number) for number in range(6)]
            answers = {}
            threads = [threading.Thread(target=lambda prompt: answers.update({prompt: router.complete(prompt, 8)}),
                                        args=(prompt,)) for prompt in prompts]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(300)
            assert answers == {prompt: one.complete(prompt, 8) for prompt in prompts}
            assert all(way(server, "served") > 0 for server in (first, second))
            assert all(way(server, "fetched") > 0 for server in (a, b))
            first.process.kill()
            second.process.kill()
            assert router.complete(story(8), 8) == one.complete(story(8), 8)


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
