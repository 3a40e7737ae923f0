"""Chromium, driven for the tests of the page; and `sluice serve`, started for them."""
import json
import shutil
import time
import urllib.request
from contextlib import contextmanager

from serving import Server, Skip, need_model


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
        self.tab.set_default_timeout(60000)
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

    def until(self, condition, seconds=60):
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


def get(url):
    with urllib.request.urlopen(url, timeout=60) as answer:
        return answer.status, dict(answer.headers), answer.read()


@contextmanager
def serve(*arguments):
    """`sluice serve` with the default model; yields its address."""
    need_model()
    with Server(*arguments) as server:
        yield server.url + "/"
        server.stop()


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
