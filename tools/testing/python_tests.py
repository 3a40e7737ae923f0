"""The step that runs tests/python/*_test.py: scripts that hold the program against packages from PyPI.

Each script is run by the Python of .venv, which has the packages that tests/python/requirements.txt pins; its last line
is "N passed, M failed, K skipped". The environment names the program (SLUICE_BINARY) and the models (SLUICE_MODELS)."""
import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor

from testing.programs import build
from testing.step import JOBS, ROOT, Counts, Failed, Skipped, run

VENV = ROOT / ".venv"
# Scripts that run side by side, one for each core and the program in them with one thread; those that take longest come
# first. They hold the program to no time, listen on ports that the system chooses and write into temporary folders of their
# own. Every other script holds the program to limits of time and runs alone, with all cores.
TOGETHER = ("invariance_test.py", "defaults_test.py", "llama_cpp_test.py", "page_test.py", "clients_test.py",
            "shared_prefix_test.py", "tokenizer_test.py", "ollama_test.py", "cli_test.py", "terminal_test.py", "memory_test.py",
            "rope_test.py", "models_test.py", "roles_test.py", "route_test.py", "deploy_test.py", "launcher_test.py", "install_test.py", "timing_test.py", "tools_test.py",
            "lab_test.py", "compress_test.py", "vision_test.py")
COUNTS = re.compile(r"(\d+) passed, (\d+) failed, (\d+) skipped")


def last_line(output):
    return output.strip().rpartition("\n")[2]


def prepare():
    """A virtual environment with exactly the pinned packages; made once, and again when the pins change. Where they cannot
    be had, as without a network, the answer says why, and the scripts skip what needs them."""
    pins = ROOT / "tests/python/requirements.txt"
    stamp = VENV / "requirements.txt"
    if stamp.exists() and stamp.read_text() == pins.read_text():
        return ""
    code, output = run([sys.executable, "-m", "venv", "--clear", VENV])
    if code != 0:
        raise Skipped(f"no virtual environment can be made: {last_line(output)}")
    code, output = run([VENV / "bin/pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check",
                        "--retries", "2", "--require-hashes", "-r", pins])
    if code != 0:
        return f"the packages of tests/python/requirements.txt cannot be installed: {last_line(output)}"
    stamp.write_text(pins.read_text())
    return ""


preparation = None


def start_preparing():
    """Fetches the packages while something else is compiled; comes before run_all()."""
    global preparation
    preparation = ThreadPoolExecutor(1).submit(prepare)


def run_script(script, environment=None):
    started = time.monotonic()
    variables = {"SLUICE_BINARY": str(ROOT / "build/release/sluice"), **(environment or {})}
    code, output = run([VENV / "bin/python", script], environment=variables)
    counts = COUNTS.fullmatch(last_line(output))
    passed, failed, skipped = map(int, counts.groups()) if counts else (0, 0, 0)
    if (code != 0 or not counts) and failed == 0:
        failed = 1
    note = f"{script.name} failed" if failed else ""
    print(f"       {script.name:<24}{time.monotonic() - started:7.1f} s", flush=True)
    return Counts(passed, failed, skipped, note, output if failed else "")


def run_all():
    scripts = {path.name: path for path in sorted((ROOT / "tests/python").glob("*_test.py"))}
    unknown = [name for name in TOGETHER if name not in scripts]
    if unknown:
        raise Failed(f"tests/python has no {', '.join(unknown)}: see the list in tools/testing/python_tests.py")
    build("release")
    missing = preparation.result()
    with ThreadPoolExecutor(max(2, JOBS)) as pool:
        together = pool.map(lambda name: run_script(scripts[name], {"SLUICE_THREADS": "1"}), TOGETHER)
        counts = sum(together, Counts(note=missing))
    return sum((run_script(script) for name, script in scripts.items() if name not in TOGETHER), counts)
