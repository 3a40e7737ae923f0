#!/usr/bin/env python3
"""The launcher: what it asks before it installs packages. apt-get and the build are stand-ins; nothing is installed."""
import os
import pty
import select
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import serving

# name: what it does; `log` is written to by apt-get alone
STAND_INS = {
    "dpkg-query": "true",
    "apt-cache": "true",
    "apt-get": 'echo "$@" >> "$LOG"',
    "sudo": 'exec "$@"',
    "cmake": 'mkdir -p build/release; touch build/release/build.ninja',
    "ninja": 'printf "#!/bin/sh\\necho ran \\"\\$@\\"\\n" > "$2/sluice"; chmod +x "$2/sluice"',
}


class Repository:
    """A copy of the launcher in a folder of its own, with stand-ins for the programs that it calls."""

    def __init__(self, folder):
        self.root = Path(folder) / "repository"
        for name in ("sluice", "tools/packages.sh", "tools/packages.txt", "CMakeLists.txt", "CMakePresets.json", "layers.txt"):
            (self.root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(serving.ROOT / name, self.root / name)
        for name in ("src", "cmake"):
            (self.root / name).mkdir()
        tools = Path(folder) / "bin"
        tools.mkdir()
        for name, body in STAND_INS.items():
            (tools / name).write_text(f"#!/bin/sh\n{body}\n")
            (tools / name).chmod(0o755)
        self.log = Path(folder) / "apt.log"
        self.environment = {"PATH": f"{tools}:{os.environ['PATH']}", "HOME": folder, "LOG": str(self.log), "SLUICE_MODEL": "none"}

    def installed(self):
        return self.log.exists() and " install " in self.log.read_text()

    def on_terminal(self, *words, answer):
        """Exit code and what the terminal shows; `answer` is typed when asked."""
        master, slave = pty.openpty()
        process = subprocess.Popen([self.root / "sluice", *words], stdin=slave, stdout=slave, stderr=slave, env=self.environment,
                                   start_new_session=True)
        os.close(slave)
        seen, deadline = "", time.monotonic() + 60
        while time.monotonic() < deadline:
            if select.select([master], [], [], 0.1)[0]:
                try:
                    seen += os.read(master, 4096).decode()
                except OSError:
                    break
            if "[Y/n]" in seen and answer is not None:
                os.write(master, answer.encode())
                answer = None
        os.close(master)
        return process.wait(10), seen


def repository(test):
    def run():
        with tempfile.TemporaryDirectory(prefix="sluice-launcher-") as folder:
            test(Repository(folder))
    run.__name__ = test.__name__
    return run


@repository
def test_a_terminal_is_asked(one):
    code, seen = one.on_terminal("serve", answer="n\n")
    assert code == 69 and "libboost1.81-dev" in seen and "nothing was installed" in seen, (code, seen)
    assert not one.installed(), one.log.read_text()
    code, seen = one.on_terminal("serve", answer="\n")
    assert code == 0 and one.installed() and "ran serve" in seen, (code, seen)


@repository
def test_minus_y_does_not_ask(one):
    code, seen = one.on_terminal("-y", "serve", "--port", "0", answer=None)
    assert code == 0 and "[Y/n]" not in seen and one.installed() and "ran serve --port 0" in seen, (code, seen)


@repository
def test_without_a_terminal_nobody_is_asked(one):
    result = subprocess.run([one.root / "sluice", "serve"], env=one.environment, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            timeout=60)
    assert result.returncode == 0 and one.installed() and result.stdout == "ran serve\n", result


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
