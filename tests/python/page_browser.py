"""Chromium, driven for the tests of the page; and `sluice serve`, started for them."""
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BINARY = Path(os.environ.get("SLUICE_BINARY", ROOT / "build/release/sluice")).resolve()
MODEL = Path(os.environ.get("SLUICE_MODELS", ROOT / ".models")).resolve() / "SmolLM2-135M-Instruct.Q4_1.gguf"


class Skip(Exception):
    pass


def chromium():
    for name in ("chromium", "chromium-browser", "google-chrome"):
        if shutil.which(name):
            return shutil.which(name)
    raise Skip("no chromium on this machine")


def playwright():
    try:
        from playwright.sync_api import sync_playwright
    except ImportError:
        raise Skip("the package playwright is not installed") from None
    return sync_playwright()


class Page:
    """One page of a fresh browser profile. `problems` has what went wrong in it: errors of scripts, violations of the
    content policy, and requests to anywhere but the server it came from."""

    def __init__(self, context, url, ignore):
        self.context, self.url, self.ignore, self.problems = context, url, ignore, []
        self.tab = context.new_page()
        self.tab.set_default_timeout(20000)
        self.tab.on("console", self.note_console)
        self.tab.on("pageerror", lambda error: self.problems.append(f"script: {error}"))
        self.tab.on("request", self.note_request)

    def note_console(self, message):
        if message.type in ("error", "warning") and not any(text in message.text for text in self.ignore):
            self.problems.append(f"console: {message.text}")

    def note_request(self, request):
        if not request.url.startswith((self.url, "blob:", "data:")):
            self.problems.append(f"request to {request.url}")

    def open(self, view=""):
        self.tab.goto(self.url + view)
        self.tab.wait_for_selector("#model option", state="attached")

    def send(self, text):
        self.tab.fill("#input", text)
        self.tab.press("#input", "Enter")

    def ask(self, text):
        """Sends a message and waits for the whole answer."""
        before = self.count(".message.assistant")
        self.send(text)
        self.until(f"document.querySelectorAll('.message.assistant').length > {before}")
        self.settle()
        return self.last_answer()

    def until(self, condition, seconds=20):
        """Waits for a condition in JavaScript. Playwright's own way to wait evaluates text in the page, which the content
        policy forbids."""
        deadline = time.monotonic() + seconds
        while not self.tab.evaluate(condition):
            assert time.monotonic() < deadline, f"not true after {seconds} s: {condition}"
            time.sleep(0.05)

    def settle(self):
        self.tab.wait_for_selector(".message.running", state="detached", timeout=120000)

    def last_answer(self):
        return self.tab.locator(".message.assistant .markdown").last.inner_text()

    def last_stats(self):
        return self.tab.locator(".message.assistant .stats").last.inner_text()

    def count(self, selector):
        return self.tab.locator(selector).count()

    def clean(self):
        assert not self.problems, self.problems


class Browser:
    def __init__(self):
        program = chromium()
        self.playwright = playwright().start()
        self.browser = self.playwright.chromium.launch(executable_path=program, args=["--no-sandbox", "--disable-gpu"])

    def close(self):
        self.browser.close()
        self.playwright.stop()

    @contextmanager
    def page(self, url, ignore=(), **options):
        """A page that must be without problems when it is left; console lines that hold a text of `ignore` are none."""
        options = {"viewport": {"width": 1280, "height": 820}, "accept_downloads": True, **options}
        context = self.browser.new_context(**options)
        page = Page(context, url, ignore)
        try:
            yield page
            page.clean()
        finally:
            context.close()


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def get(url):
    with urllib.request.urlopen(url, timeout=10) as answer:
        return answer.status, dict(answer.headers), answer.read()


@contextmanager
def serve(*arguments):
    """`sluice serve` with the default model; yields its address."""
    if not BINARY.exists():
        raise Skip(f"no program at {BINARY}")
    if not MODEL.exists():
        raise Skip(f"the default model is not at {MODEL}")
    port = free_port()
    command = [BINARY, "serve", "--port", str(port), "--model", MODEL, *arguments]
    process = subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    url = f"http://127.0.0.1:{port}/"
    try:
        wait_until_ready(process, url)
        yield url
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            raise
        finally:
            process.stdout.close()


def wait_until_ready(process, url):
    for _ in range(300):
        if process.poll() is not None:
            raise AssertionError(f"serve ended with {process.returncode}: {process.stdout.read()[-800:]}")
        try:
            if get(url + "ready")[0] == 200:
                return
        except OSError:
            time.sleep(0.1)
    raise AssertionError("serve was not ready after 30 s")


def metrics(url):
    """Values of /metrics by name, summed over their labels."""
    values = {}
    for line in get(url + "metrics")[2].decode().splitlines():
        if not line.startswith("#"):
            name = line.partition("{")[0].partition(" ")[0]
            values[name] = values.get(name, 0) + float(line.rpartition(" ")[2])
    return values


def foreign(conversations):
    """The text of a file that the page can import."""
    return json.dumps({"format": "sluice-conversations", "version": 1, "conversations": conversations})
