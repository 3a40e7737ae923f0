#!/usr/bin/env python3
"""What `cmake --install` gives to programs: the library, its headers, the CMake package and the pkg-config file.

The build beside SLUICE_BINARY is installed into a temporary prefix, which is then moved, so that nothing may hold its first
place. examples/ is built against it: in C by cc with pkg-config's flags, and by CMake with find_package. The library itself
is called through ctypes, so that an end of the process would be the end of this script."""
import ctypes
import functools
import os
import shutil
import subprocess
import sys
import tempfile
import threading
from pathlib import Path

import serving

PROMPT = "What is the capital of France?"
OK, INVALID_ARGUMENT, NOT_FOUND, CORRUPT = 0, 1, 2, 3
LENGTH, CANCELLED = 1, 2
folder = tempfile.TemporaryDirectory(prefix="sluice-install-")
prefix = Path(folder.name) / "moved"


def run(*command, code=0, **environment):
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
    clean |= {"SLUICE_MODELS": str(serving.MODELS), **environment}
    done = subprocess.run([str(word) for word in command], env=clean, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=600)
    assert done.returncode == code, f"{command} ended with {done.returncode}: {done.stdout[-2000:]}{done.stderr[-2000:]}"
    return done


@functools.cache
def installed():
    first = Path(folder.name) / "first"
    run("cmake", "--install", Path(serving.BINARY).parent, "--prefix", first)
    first.rename(prefix)
    return prefix


@functools.cache
def library_folder():
    return next(installed().glob("lib*/**/libsluice.so")).parent


def run_linked(program, *words, code=0):
    return run(program, *words, code=code, LD_LIBRARY_PATH=str(library_folder()))


@functools.cache
def c_example():
    if not shutil.which("pkg-config"):
        raise serving.Skip("pkg-config is missing")
    flags = run("pkg-config", "--cflags", "--libs", "sluice", PKG_CONFIG_PATH=str(library_folder() / "pkgconfig")).stdout.split()
    program = Path(folder.name) / "answer"
    run("cc", "-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", serving.ROOT / "examples/answer.c", *flags, "-o", program)
    return program


@functools.cache
def cmake_examples():
    build = Path(folder.name) / "examples"
    run("cmake", "-G", "Ninja", "-S", serving.ROOT / "examples", "-B", build, f"-DCMAKE_PREFIX_PATH={installed()}")
    run("cmake", "--build", build)
    return build


@functools.cache
def greedy(prompt):
    """What the program answers, in at most 32 tokens."""
    serving.need_model()
    return run(serving.BINARY, "run", "-p", prompt, "-n", 32, "--temp", 0).stdout.rstrip("\n")


def options(*settings):
    return (ctypes.c_char_p * (len(settings) + 1))(*(setting.encode() for setting in settings), None)


TEXT_CALLBACK = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p, ctypes.POINTER(ctypes.c_char), ctypes.c_size_t)


class Output(ctypes.Structure):
    _fields_ = [("on_text", TEXT_CALLBACK), ("user", ctypes.c_void_p)]


class Answer(ctypes.Structure):
    _fields_ = [("end", ctypes.c_int), ("prompt_tokens", ctypes.c_int32), ("cached_tokens", ctypes.c_int32),
                ("generated_tokens", ctypes.c_int32), ("first_token_seconds", ctypes.c_double), ("total_seconds", ctypes.c_double)]


@functools.cache
def library():
    loaded = ctypes.CDLL(str(library_folder() / "libsluice.so"))
    loaded.sluice_version.restype = loaded.sluice_error_message.restype = ctypes.c_char_p
    loaded.sluice_unload.argtypes = [ctypes.c_void_p]
    return loaded


class Session:
    """A loaded model, for `with`."""

    def __init__(self, *settings, model=serving.DEFAULT_MODEL):
        self.handle = ctypes.c_void_p()
        self.code = library().sluice_load(str(model).encode(), options("threads=1", "ctx-size=1024", *settings), ctypes.byref(self.handle))
        self.message = library().sluice_error_message().decode() if self.code else ""

    def __enter__(self):
        assert self.code == OK, self.message
        return self

    def __exit__(self, *problem):
        library().sluice_unload(self.handle)

    def generate(self, prompt, *settings, most=1 << 20):
        """(code, text, answer); the callback ends it once it has `most` bytes."""
        got = bytearray()

        def take(user, text, size):
            got.extend(text[:size])
            return len(got) >= most

        output, answer = Output(TEXT_CALLBACK(take), None), Answer()
        code = library().sluice_generate(self.handle, prompt.encode(), options(*settings), ctypes.byref(output), ctypes.byref(answer))
        return code, got.decode(), answer


def test_the_c_example_answers_as_the_program_does():
    expected = greedy(PROMPT)
    done = run_linked(c_example(), serving.DEFAULT_MODEL, PROMPT)
    assert done.stdout.rstrip("\n") == expected, (done.stdout, expected)
    count = len(subprocess.run([serving.BINARY, "tokenize", "-m", serving.DEFAULT_MODEL], input=PROMPT, capture_output=True, text=True,
                               check=True).stdout.split())
    assert f"{count} tokens, and back" in done.stderr and "576 dimensions" in done.stderr, done.stderr


def test_an_example_names_what_is_missing():
    done = run_linked(c_example(), "/no/such/model.gguf", PROMPT, code=1)
    assert f"error {NOT_FOUND}" in done.stderr and "/no/such/model.gguf" in done.stderr, done.stderr
    done = run_linked(cmake_examples() / "together", "/no/such/model.gguf", PROMPT, code=1)
    assert "/no/such/model.gguf" in done.stderr, done.stderr


def test_the_cpp_example_answers_prompts_at_once():
    prompts = [PROMPT, "Name a colour.", "Say hello."]
    expected = [greedy(prompt) for prompt in prompts]
    lines = run_linked(cmake_examples() / "together", serving.DEFAULT_MODEL, *prompts).stdout
    assert [line for line in lines.splitlines() if line in prompts] == prompts, lines
    for prompt, text in zip(prompts, expected):
        answer = lines.partition(f"{prompt}\n  ")[2]
        assert answer and answer.startswith(text.partition(". ")[0]), (answer, text)


def test_cmake_builds_the_c_example_too():
    serving.need_model()
    done = run_linked(cmake_examples() / "answer", serving.DEFAULT_MODEL, PROMPT)
    assert done.stdout.rstrip("\n") == greedy(PROMPT), done.stdout


def test_only_the_interface_is_exported():
    names = run("nm", "-DC", "--defined-only", library_folder() / "libsluice.so").stdout.splitlines()
    names = [line.split(maxsplit=2)[2] for line in names]
    foreign = [name for name in names
               if not name.startswith(("sluice_", "sluice::llm::Session::", "sluice::detail::check_failed"))]
    assert len(names) > 20 and not foreign, foreign


def test_the_version_is_the_programs():
    version = library().sluice_version().decode()
    assert f"sluice {version}" in run(installed() / "bin/sluice", "--version").stdout, version


def test_two_sessions_at_once():
    expected = greedy(PROMPT)
    with Session() as one, Session() as two:
        answers = {}

        def ask(name, session):
            answers[name] = session.generate(PROMPT, "temperature=0", "max-tokens=32")

        threads = [threading.Thread(target=ask, args=pair) for pair in ((1, one), (2, two), (3, one))]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert [(code, text.rstrip("\n")) for code, text, _ in answers.values()] == [(OK, expected)] * 3, answers


def test_the_callback_ends_an_answer():
    serving.need_model()
    with Session() as session:
        code, text, answer = session.generate(PROMPT, "temperature=0", "max-tokens=500", "ignore-eos=on", most=10)
        assert code == OK and answer.end == CANCELLED and len(text.encode()) >= 10, (code, text, answer.end)
        assert 0 < answer.generated_tokens < 500, answer.generated_tokens
        code, _, answer = session.generate(PROMPT, "max-tokens=3", "ignore-eos=on")
        assert code == OK and answer.end == LENGTH and answer.generated_tokens == 3, answer.generated_tokens


def test_errors_are_codes_and_the_process_lives():
    serving.need_model()
    missing = Session(model="/no/such/model.gguf")
    assert missing.code == NOT_FOUND and "/no/such/model.gguf" in missing.message and not missing.handle, missing.message
    damaged = Path(folder.name) / "damaged.gguf"
    damaged.write_bytes(serving.DEFAULT_MODEL.read_bytes()[:1 << 20])
    cut = Session(model=damaged)
    assert cut.code == CORRUPT and "damaged.gguf" in cut.message and not cut.handle, (cut.code, cut.message)
    wrong = Session("context=9")
    assert wrong.code == INVALID_ARGUMENT and "context" in wrong.message, wrong.message
    with Session() as session:
        code, _, _ = session.generate(PROMPT, "temperature=hot")
        assert code == INVALID_ARGUMENT and b"temperature" in library().sluice_error_message()
        code, _, _ = session.generate("long " * 4000)
        assert code != OK and b"context" in library().sluice_error_message(), library().sluice_error_message()
        assert session.generate(PROMPT, "max-tokens=1")[0] == OK


if __name__ == "__main__":
    code = serving.run_tests(serving.tests_of(sys.modules[__name__]))
    folder.cleanup()
    sys.exit(code)
