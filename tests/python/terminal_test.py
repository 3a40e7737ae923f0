#!/usr/bin/env python3
"""The program on a terminal, which is a pseudo-terminal here: chat with pastes, keys typed into a running answer and lines
wrapped at words; and control characters of files, which terminals must not get."""
import contextlib
import fcntl
import json
import os
import pty
import re
import select
import shutil
import struct
import subprocess
import sys
import tempfile
import termios
import time
from pathlib import Path

import serving
from serving import BINARY, DEFAULT_MODEL

COLUMNS = 40
TIMINGS = "first token after"
PROMPT = "\x1b[K> "


class Terminal:
    """A program on a terminal of COLUMNS columns."""

    def __init__(self, *arguments, environment=None):
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, COLUMNS, 0, 0))
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
        clean |= {"SLUICE_MODELS": str(serving.MODELS), "TERM": "xterm", "NO_COLOR": "1"} | (environment or {})
        self.process = subprocess.Popen([BINARY, *map(str, arguments)], stdin=slave, stdout=slave, stderr=slave, env=clean,
                                        start_new_session=True)
        os.close(slave)
        self.seen = ""

    def write(self, text):
        os.write(self.master, text.encode())

    def read_some(self, seconds):
        if not select.select([self.master], [], [], seconds)[0]:
            return False
        try:
            piece = os.read(self.master, 65536)
        except OSError:  # the program has ended
            return False
        self.seen += piece.decode(errors="replace")
        return bool(piece)

    def until(self, text, seconds=120):
        """Everything up to and with the text, which is taken off what was seen."""
        deadline = time.monotonic() + seconds
        while text not in self.seen:
            assert time.monotonic() < deadline, f"no {text!r} in {self.seen[-800:]!r}"
            ended = self.process.poll() is not None  # before it is read: what it has written is there
            if not self.read_some(1) and ended and text not in self.seen:
                raise AssertionError(f"ended with {self.process.poll()}, without {text!r}: {self.seen[-800:]!r}")
        before, found, self.seen = self.seen.partition(text)
        return before + found

    def rest(self, seconds=60):
        deadline, ended = time.monotonic() + seconds, False
        while time.monotonic() < deadline and (self.read_some(0.2) or not ended):
            ended = self.process.poll() is not None
        return self.seen

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)


@contextlib.contextmanager
def terminal(*arguments, **options):
    one = Terminal(*arguments, **options)
    try:
        yield one
    finally:
        one.close()


@contextlib.contextmanager
def chat(*arguments):
    """A chat that waits for its first message, and a folder."""
    serving.need_model()
    with tempfile.TemporaryDirectory(prefix="sluice-chat-") as folder:
        with terminal("chat", "--temp", 0, *arguments, environment={"XDG_STATE_HOME": folder}) as one:
            one.until(PROMPT)
            yield one, Path(folder)


def saved(one, folder):
    """The messages of the conversation."""
    path = folder / "conversation.json"
    one.write(f"/save {path}\r")
    deadline = time.monotonic() + 60
    while not path.exists() or not path.read_text().endswith("\n"):
        assert time.monotonic() < deadline, "nothing was saved"
        one.read_some(0.1)
    return json.loads(path.read_text())["messages"]


def screen_of(text):
    """The lines that a terminal shows for what was written: letters, line ends, and the sequences that answers use."""
    lines, column = [""], 0
    for escape, number, letter, plain in re.findall(r"(\x1b\[(\d*)([A-Za-z]))|([^\x1b])", text):
        if escape and letter == "G":
            column = int(number) - 1
        elif escape and letter == "K":
            lines[-1] = lines[-1][:column]
        elif plain == "\n":
            lines.append("")
        elif plain == "\r":
            column = 0
        elif plain:
            lines[-1] = lines[-1][:column] + plain + lines[-1][column + 1:]
            column += 1
        if plain == "\n":
            column = 0
    return lines


# -- chat --------------------------------------------------------------------------------------------------------------

def test_a_paste_is_one_message():
    with chat("-n", 8) as (one, folder):
        one.write("About: \x1b[200~first line\rsecond\x1b[31m line\r\nthird\x1b[201~ end\r")
        one.until(TIMINGS)
        one.until(PROMPT)
        messages = saved(one, folder)
        assert [message["role"] for message in messages] == ["user", "assistant"], messages
        assert messages[0]["content"] == "About: first line\nsecond[31m line\nthird end", messages


def test_keys_are_not_shown_in_an_answer():
    with chat("-n", 200, "--ignore-eos") as (one, folder):
        one.write("Tell me a long story.\r")
        one.until("\r\n")
        one.read_some(60)
        one.write("zzqqzz")
        answer = one.until(TIMINGS)
        assert "zzqqzz" not in answer, answer
        one.until("zzqqzz")  # waits in the next message
        one.write("\x15")  # Ctrl-U
        assert "zzqqzz" not in saved(one, folder)[-1]["content"]


def test_keys_are_not_shown_between_messages():
    with chat() as (one, folder):
        fifo = folder / "fifo"
        os.mkfifo(fifo)
        one.write(f"/load {fifo}\r")
        one.until("\x1b[?2004l")  # the line has been read
        with open(fifo, "w"):  # opened by the command, which waits for text
            assert not termios.tcgetattr(one.master)[3] & termios.ECHO
            one.write("zzqqzz")
        assert "zzqqzz" not in one.until(PROMPT)
        one.until("zzqqzz")


def test_answers_wrap_at_words():
    with chat("-n", 120, "--ignore-eos") as (one, folder):
        one.write("Write about the history of Paris.\r")
        one.until("\r\n")
        shown = one.until("\r\n[")
        text = saved(one, folder)[-1]["content"]
        lines = screen_of(shown[:-len("\r\n[")].replace("\x1b[?2004l", ""))
        assert len(lines) > 5 and max(map(len, lines)) <= COLUMNS, lines
        assert " ".join(lines).split() == text.split(), (lines, text)


# -- control characters ------------------------------------------------------------------------------------------------

EVIL = "a\x1b]0;title\x07\x1b[2Jb\x9bc"


def both(*arguments, **options):
    """What a terminal and a pipe get."""
    with terminal(*arguments, **options) as one:
        shown = one.rest()
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")} | options.get("environment", {})
    piped = subprocess.run([BINARY, *map(str, arguments)], env=clean, capture_output=True, stdin=subprocess.DEVNULL, timeout=60)
    return shown, (piped.stdout + piped.stderr).decode()


def check_escaped(shown, piped):
    assert "\x1b" not in shown and "\x07" not in shown and "\x9b" not in shown, repr(shown)
    assert r"\x1b]0;title\x07\x1b[2Jb\xc2\x9bc" in shown.replace("\r\n", ""), repr(shown)
    assert EVIL in piped, repr(piped)


def test_names_of_files_are_escaped():
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / (EVIL + ".gguf")
        path.write_bytes(b"GGUF")
        check_escaped(*both("list", environment={"SLUICE_MODELS": folder, "HOME": folder}))
        shutil.copytree(serving.ROOT / "tests/runtime/data/expert", Path(folder) / EVIL)
        check_escaped(*both("describe", Path(folder) / EVIL))


def test_texts_of_templates_are_escaped():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "template.jinja").write_text(EVIL + "{{ messages[0].content }}")
        (folder / "messages.json").write_text(json.dumps({"messages": [{"role": "user", "content": "one\ntwo"}]}))
        shown, piped = both("render", "--template", folder / "template.jinja", "--input", folder / "messages.json")
        check_escaped(shown, piped)
        assert "one\r\ntwo" in shown and "one\ntwo" in piped
        (folder / "template.jinja").write_text("{{ raise_exception(messages[0].content) }}")
        (folder / "messages.json").write_text(json.dumps({"messages": [{"role": "user", "content": EVIL}]}))
        check_escaped(*both("render", "--template", folder / "template.jinja", "--input", folder / "messages.json"))


def test_texts_of_tokens_are_escaped():
    serving.need_model()
    ids = subprocess.run([BINARY, "tokenize", "-m", DEFAULT_MODEL], input=EVIL, text=True, capture_output=True, timeout=60).stdout
    with terminal("detokenize", "-m", DEFAULT_MODEL) as one:
        one.write(ids + "\x04")  # and the end of the input
        shown = one.rest()
    piped = subprocess.run([BINARY, "detokenize", "-m", DEFAULT_MODEL], input=ids, text=True, capture_output=True, timeout=60).stdout
    check_escaped(shown, piped)


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
