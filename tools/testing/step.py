"""What every step of the test run shares: the repository, counts, and running a command."""
import os
import subprocess
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
JOBS = int(os.environ.get("SLUICE_JOBS") or os.cpu_count() or 1)
MODELS = Path(os.environ.get("SLUICE_MODELS") or ROOT / ".models")


class Failed(Exception):
    """A step, or one thing in it, failed: a short reason, and the output to show."""

    def __init__(self, reason, output=""):
        super().__init__(reason)
        self.output = output


class Skipped(Exception):
    """A step cannot run here; the message says why."""


@dataclass
class Counts:
    passed: int = 0
    failed: int = 0
    skipped: int = 0
    note: str = ""  # for the step's line
    output: str = ""  # shown where something failed

    def __add__(self, other):
        return Counts(self.passed + other.passed, self.failed + other.failed, self.skipped + other.skipped,
                      ", ".join(filter(None, (self.note, other.note))), self.output + other.output)

    def describe(self):
        numbers = [f"{self.passed} passed"] if self.passed else []
        numbers += [f"{self.failed} failed"] if self.failed else []
        numbers += [f"{self.skipped} skipped"] if self.skipped else []
        return ", ".join(numbers) + (f": {self.note}" if self.note else "")


def run(command, timeout=1800, environment=None):
    """Runs a command in the repository: (exit code, stdout and stderr together). A time-out counts as code 124."""
    variables = {**os.environ, "SLUICE_MODELS": str(MODELS), **(environment or {})}
    try:
        done = subprocess.run([str(word) for word in command], cwd=ROOT, env=variables, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT, timeout=timeout, errors="replace", text=True)
    except subprocess.TimeoutExpired as expired:
        output = expired.stdout or b""
        return 124, f"{output.decode(errors='replace')}\nended after {timeout} s\n"
    return done.returncode, done.stdout


def must_run(reason, command, **options):
    """The output of a command, which must succeed."""
    code, output = run(command, **options)
    if code != 0:
        raise Failed(f"{reason} (exit code {code})", output)
    return output
