#!/usr/bin/env python3
"""`sluice serve` within the memory that its process may have, and with a model file that is written to while it is served.

SLUICE_BINARY names the program, SLUICE_MODELS the folder of the default model.
"""
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import serving
from serving import BINARY, DEFAULT_MODEL, MODELS, Server, Skip, need_model


class LimitedServer(Server):
    """With so many bytes of address space."""

    def __init__(self, bytes_, *arguments):
        folder = tempfile.mkdtemp(prefix="sluice-limited-")
        program = Path(folder, "sluice")
        program.write_text(f'#!/bin/sh\nexec prlimit --as={bytes_} "{BINARY}" "$@"\n')
        program.chmod(0o755)
        whole, serving.BINARY = serving.BINARY, str(program)
        try:
            super().__init__(*arguments)
        finally:
            serving.BINARY = whole
            shutil.rmtree(folder)


def need_prlimit():
    need_model()
    if not shutil.which("prlimit"):
        raise Skip("prlimit is not installed")


def test_a_gigabyte_is_enough():
    need_prlimit()
    with LimitedServer(1 << 30) as server:
        said = re.search(r"KV cache of (\d+) tokens \((\d+) MiB\)", server.text())
        assert said, server.text()
        assert int(said.group(1)) >= 512 and int(said.group(2)) < 512, said.group(0)
        assert server.complete("The capital of France is", 8).strip()
        assert server.stop() == 0, server.text()


def refused(bytes_, *arguments):
    command = ["prlimit", f"--as={bytes_}", BINARY, "serve", "--port", "0", *arguments]
    environment = os.environ | {"SLUICE_MODELS": str(MODELS)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL, timeout=120)
    assert done.returncode == 69, (done.returncode, done.stderr)
    return done.stderr


def test_too_little_is_said_with_the_numbers():
    need_prlimit()
    said = refused(1 << 30, "--kv-tokens", "200000")
    assert re.search(r"--kv-tokens 200000 takes [\d.]+ GiB, this process can have \d+ MiB more: "
                     r"the limit on its address space is 1\.0 GiB", said), said


def test_a_file_written_to_in_place_ends_the_server():
    need_model()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.gguf")
        shutil.copyfile(DEFAULT_MODEL, model)
        with Server("-m", model) as server:
            assert server.complete("Once", 4)
            time.sleep(0.2)
            with open(model, "r+b") as file:
                file.seek(model.stat().st_size // 2)
                file.write(os.urandom(1 << 20))
            status, _, body = server.request("POST", "/v1/completions",
                                             {"model": server.model, "prompt": "Once", "max_tokens": 64, "ignore_eos": True})
            assert status != 200, body
            assert server.process.wait(30) != 0
            assert f"model file {model} changed on disk while it was in use" in server.text(), server.text()


def test_a_file_that_is_touched_goes_on():
    need_model()
    with tempfile.TemporaryDirectory() as folder:
        model = Path(folder, "model.gguf")
        shutil.copyfile(DEFAULT_MODEL, model)
        with Server("-m", model) as server:
            before = server.complete("Once", 8)
            time.sleep(0.2)
            model.touch()
            assert server.complete("Once", 8) == before
            time.sleep(0.2)
            assert server.complete("Once", 8) == before


def test_a_file_that_is_replaced_goes_on():
    need_model()
    with tempfile.TemporaryDirectory() as folder:
        model, other = Path(folder, "model.gguf"), Path(folder, "other")
        shutil.copyfile(DEFAULT_MODEL, model)
        with Server("-m", model) as server:
            before = server.complete("Once", 8)
            other.write_bytes(b"nothing")
            other.rename(model)
            time.sleep(0.2)
            assert server.complete("Once", 8) == before


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
