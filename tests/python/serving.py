"""A running `sluice serve` for the scripts beside this file, and the words they share."""
import contextlib
import http.client
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
sys.path.append(str(ROOT / "bench"))  # streaming.py
BINARY = str(Path(os.environ.get("SLUICE_BINARY", ROOT / "build/release/sluice")).resolve())
MODELS = Path(os.environ.get("SLUICE_MODELS", ROOT / ".models")).resolve()
DEFAULT_MODEL = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"
START_SECONDS = 60


class Skip(Exception):
    pass


def package(name):
    """A module of a client's package; skips the test where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise Skip(f"{name} is not installed: {error}") from error


class Server:
    """The program on a free port of the loopback, with the default model unless the arguments name another. `stderr` is
    where its log goes instead of beside what it prints, `files` how many it may open, `before` what starts it, as mpirun does."""

    def __init__(self, *arguments, environment=None, api_key=None, stderr=subprocess.STDOUT, files=None, before=()):
        self.key = api_key
        clean = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_") or key == "SLUICE_THREADS"}
        clean |= {"SLUICE_MODELS": str(MODELS)} | (environment or {})
        self.log = tempfile.NamedTemporaryFile("w+", prefix="sluice-serve-", suffix=".log")
        started = time.monotonic()
        command = [*map(str, before), BINARY, "serve", "--port", "0", *map(str, arguments)]
        if files:
            command = ["sh", "-c", f'ulimit -n {files}; exec "$0" "$@"', *command]
        self.process = subprocess.Popen(command, env=clean, stdout=self.log, stderr=stderr, stdin=subprocess.DEVNULL)
        self.port = self._wait_for_port()
        self._wait_until_ready()
        self.ready_after = time.monotonic() - started
        self.url = f"http://127.0.0.1:{self.port}"
        self.model = self.get("/v1/models")["data"][0]["id"]

    def text(self):
        return Path(self.log.name).read_text(errors="replace")

    def _wait_for_port(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            found = re.search(r"http://(?:127\.0\.0\.1|localhost|0\.0\.0\.0):(\d+)", self.text())
            if found:
                return int(found.group(1))
            if self.process.poll() is not None:
                raise RuntimeError(f"serve ended with {self.process.returncode}: {self.text()[-2000:]}")
            time.sleep(0.005)
        raise RuntimeError(f"serve named no address in {START_SECONDS} s: {self.text()[-2000:]}")

    def _wait_until_ready(self):
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            with contextlib.suppress(OSError):
                if self.request("GET", "/ready")[0] == 200:
                    return
            time.sleep(0.005)
        raise RuntimeError(f"serve was not ready in {START_SECONDS} s: {self.text()[-2000:]}")

    OWN_KEY = object()

    def request(self, method, path, body=None, headers=None, timeout=300, key=OWN_KEY):
        """Status, headers and bytes of an answer. A dict becomes JSON; `key` stands in for the server's own one."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=timeout)
        try:
            headers = dict(headers or {})
            key = self.key if key is self.OWN_KEY else key
            if key is not None:
                headers["Authorization"] = f"Bearer {key}"
            if isinstance(body, (dict, list)):
                body = json.dumps(body)
            if body is not None:
                headers.setdefault("Content-Type", "application/json")
            connection.request(method, path, body, headers)
            answer = connection.getresponse()
            return answer.status, dict(answer.getheaders()), answer.read()
        finally:
            connection.close()

    def get(self, path, headers=None):
        status, _, body = self.request("GET", path, headers=headers)
        assert status == 200, f"GET {path}: {status} {body[:300]}"
        return json.loads(body)

    def post(self, path, body, status=200, headers=None):
        found, _, answer = self.request("POST", path, body, headers)
        assert found == status, f"POST {path}: {found}, wanted {status}: {answer[:400]}"
        return json.loads(answer)

    def complete(self, prompt, tokens=16, **fields):
        body = {"model": self.model, "prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True} | fields
        return self.post("/v1/completions", body)["choices"][0]["text"]

    def metrics(self):
        """Every sample of /metrics without a bucket: name with labels to value."""
        status, _, body = self.request("GET", "/metrics")
        assert status == 200, f"/metrics: {status}"
        samples = {}
        for line in body.decode().splitlines():
            if line and not line.startswith("#"):
                name, _, value = line.rpartition(" ")
                samples[name] = float(value)
        return samples

    def metric(self, name):
        """The sum of a metric over its labels."""
        found = [value for key, value in self.metrics().items() if key.partition("{")[0] == name]
        assert found, f"/metrics has no {name}"
        return sum(found)

    def wait_until(self, name, least, seconds=60):
        """Until a metric has this value or more."""
        deadline = time.monotonic() + seconds
        while (value := self.metric(name)) < least:
            assert time.monotonic() < deadline, f"after {seconds} s {name} is {value}, not {least}"
            time.sleep(0.02)

    def wait_idle(self, seconds=60):
        """Until no request runs or waits."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            if self.metric("sluice_requests_running") + self.metric("sluice_requests_waiting") == 0:
                return
            time.sleep(0.02)
        raise AssertionError(f"after {seconds} s there are still requests: running {self.metric('sluice_requests_running')}, "
                             f"waiting {self.metric('sluice_requests_waiting')}")

    def wait_for_line(self, word, seconds=60):
        """Until the log has the word."""
        deadline = time.monotonic() + seconds
        while word not in self.text():
            assert time.monotonic() < deadline, f"after {seconds} s the log has no {word!r}: {self.text()[-2000:]}"
            time.sleep(0.01)

    def cpu_seconds(self):
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def descriptors(self):
        return len(os.listdir(f"/proc/{self.process.pid}/fd"))

    def status(self, name):
        """A line of /proc/PID/status, as a number."""
        for line in Path(f"/proc/{self.process.pid}/status").read_text().splitlines():
            if line.startswith(name + ":"):
                return int(line.split()[1])
        raise KeyError(name)

    def stop(self, seconds=60):
        """The exit code after SIGTERM."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise AssertionError(f"serve did not end {seconds} s after SIGTERM") from None
        return self.process.returncode

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        self.log.close()


def need_model():
    if not Path(BINARY).exists():
        raise Skip(f"no program at {BINARY}")
    if not DEFAULT_MODEL.exists():
        raise Skip(f"the default model is not at {DEFAULT_MODEL}")


def run_tests(tests):
    """Runs functions one after the other, prints what failed and the line of counts; the exit code."""
    passed = failed = skipped = 0
    wanted = sys.argv[1:]
    for test in tests:
        if wanted and test.__name__ not in wanted:
            continue
        started = time.monotonic()
        try:
            test()
            passed += 1
            word = "ok"
        except Skip as reason:
            skipped += 1
            word = f"skipped: {reason}"
        except Exception:
            failed += 1
            word = f"FAILED\n{traceback.format_exc()}"
        print(f"{test.__name__} ({time.monotonic() - started:.1f} s): {word}", flush=True)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


def tests_of(module):
    return [value for name, value in vars(module).items() if name.startswith("test_") and callable(value)]


def run_module(module):
    """Runs the tests of a module with one server for all, which they find as `server`; the exit code."""
    try:
        need_model()
    except Skip as reason:
        print(f"{reason}\n0 passed, 0 failed, 1 skipped")
        return 0
    with Server() as module.server:
        return run_tests(tests_of(module))
