#!/usr/bin/env python3
"""Ranks on two machines: two network namespaces with names of their own, joined by a cable (veth), between which there is
nothing but TCP: each has a /dev/shm of its own, too. Needs root and iproute2, and skips where namespaces cannot be made."""
import contextlib
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import serving
from ranks_test import GOLDEN, PATIENT, PLUGIN, wait_until
from serving import BINARY, Skip

HOSTS = ("10.213.77.1", "10.213.77.2")


def ip(*words):
    return subprocess.run(["ip", *words], capture_output=True, text=True)


@contextlib.contextmanager
def two_machines():
    """The command that starts ranks on both."""
    for name in ("ip", "mpirun", "unshare"):
        if shutil.which(name) is None:
            raise Skip(f"no {name} on this machine")
    if not PLUGIN.exists():
        raise Skip(f"no {PLUGIN.name} beside the program")
    names = [f"sluice-{os.getpid()}-{i}" for i in range(2)]
    cables = [f"sl{os.getpid() % 100000}-{i}" for i in range(2)]
    with contextlib.ExitStack() as stack:
        for name in names:
            made = ip("netns", "add", name)
            if made.returncode != 0:
                raise Skip(f"no network namespace can be made: {made.stderr.strip()}")
            stack.callback(ip, "netns", "delete", name)
        made = ip("link", "add", cables[0], "netns", names[0], "type", "veth", "peer", "name", cables[1], "netns", names[1])
        if made.returncode != 0:
            raise Skip(f"no veth can be made: {made.stderr.strip()}")
        for name, cable, host in zip(names, cables, HOSTS):
            for words in (("addr", "add", f"{host}/24", "dev", cable), ("link", "set", cable, "up"), ("link", "set", "lo", "up")):
                assert ip("-n", name, *words).returncode == 0, words
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        # Stands for ssh: AGENT HOST COMMAND...
        agent = folder / "agent"
        agent.write_text('#!/bin/bash\nhost=$1; shift\n' + "".join(
            f'[ "$host" = {host} ] && name={name}\n' for host, name in zip(HOSTS, names)) +
            'exec ip netns exec "$name" unshare --uts bash -c "mount -t tmpfs none /dev/shm; hostname $name; $*"\n')
        agent.chmod(0o755)
        start = f'mount -t tmpfs none /dev/shm; hostname {names[0]}; exec "$0" "$@"'
        yield ["ip", "netns", "exec", names[0], "unshare", "--uts", "bash", "-c", start, "mpirun", "--allow-run-as-root", "--oversubscribe",
               "--bind-to", "none", "--mca", "plm_rsh_agent", str(agent), "--mca", "btl", "self,tcp", "--mca", "btl_tcp_if_include",
               "10.213.77.0/24", "--mca", "oob_tcp_if_include", "10.213.77.0/24"], names


def hosts_of(count):
    return [word for host in HOSTS for word in ("-H", f"{host}:{count // 2}")]


def test_cuts_meet_their_references_over_tcp():
    with two_machines() as (mpirun, _):
        for count, family, *cut in ((2, "llama", "--tp", 2), (2, "llama", "--tp", 2, "--sp", "on"), (2, "llama", "--pp", 2),
                                    (2, "llama", "--cp", 2), (2, "mixtral", "--ep", 2), (4, "llama", "--tp", 2, "--pp", 2)):
            command = [*mpirun, "-n", count, *hosts_of(count), BINARY, "check", GOLDEN / family, "-t", 1, "--verbose", *cut, *PATIENT]
            result = subprocess.run(list(map(str, command)), capture_output=True, text=True, stdin=subprocess.DEVNULL, timeout=300)
            assert result.returncode == 0 and "PASS" in result.stdout, (cut, result.stdout + result.stderr)
            assert "will not be noticed" not in result.stderr and "messages by shared memory" not in result.stderr, result.stderr


def test_a_machine_that_is_gone_ends_the_group():
    """The cable is pulled: no process has ended, and nothing comes any more."""
    serving.need_model()
    with two_machines() as (mpirun, names), tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        command = [*mpirun, "-n", 2, *hosts_of(2), BINARY, "serve", "-m", serving.DEFAULT_MODEL, "--port", 0, "--pp", 2, "-t", 1,
                   "--kv-tokens", 1024, "--ctx-size", 512, "--rank-timeout", 4.5]
        group = subprocess.Popen(list(map(str, command)), stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        far = []
        try:
            text = Path(log.name).read_text
            wait_until(lambda: "API base" in text(), 120)
            far = ip("netns", "pids", names[1]).stdout.split()
            link = re.search(r"\d+: (sl\S+)@", ip("-n", names[1], "link", "show", "type", "veth").stdout).group(1)
            assert ip("-n", names[1], "link", "set", link, "down").returncode == 0
            wait_until(lambda: re.search(rf"rank 1 \(process \d+ on {names[1]}\) hangs: it was not heard of for 4\.5 s", text()), 60)
        finally:
            group.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                group.wait(10)
            if group.poll() is None:
                group.kill()
                group.wait()
            for pid in [*far, *ip("netns", "pids", names[0]).stdout.split()]:
                with contextlib.suppress(OSError):
                    os.kill(int(pid), signal.SIGKILL)
            time.sleep(0.2)


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
