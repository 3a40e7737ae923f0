"""The step that runs tests/python/*_test.py: scripts that hold the program against packages from PyPI.

Each script is run by the Python of .venv, which has the packages that tests/python/requirements.txt pins; its last line
is "N passed, M failed, K skipped". The environment names the program (SLUICE_BINARY) and the models (SLUICE_MODELS)."""
import re
import sys
from concurrent.futures import ThreadPoolExecutor

from testing.programs import build
from testing.step import ROOT, Counts, Skipped, run

VENV = ROOT / ".venv"
TOGETHER = ("llama_cpp_test.py", "tokenizer_test.py")  # keep one core busy and measure no time: run side by side
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


def run_script(script):
    code, output = run([VENV / "bin/python", script], environment={"SLUICE_BINARY": str(ROOT / "build/release/sluice")})
    counts = COUNTS.fullmatch(last_line(output))
    passed, failed, skipped = map(int, counts.groups()) if counts else (0, 0, 0)
    if (code != 0 or not counts) and failed == 0:
        failed = 1
    note = f"{script.name} failed" if failed else ""
    return Counts(passed, failed, skipped, note, output if failed else "")


def run_all():
    scripts = sorted((ROOT / "tests/python").glob("*_test.py"))
    if not scripts:
        raise Skipped("tests/python has no scripts")
    build("release")
    missing = preparation.result()
    with ThreadPoolExecutor(len(TOGETHER)) as pool:
        counts = sum(pool.map(run_script, [script for script in scripts if script.name in TOGETHER]), Counts(note=missing))
    return sum((run_script(script) for script in scripts if script.name not in TOGETHER), counts)
