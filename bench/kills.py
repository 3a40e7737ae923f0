#!/usr/bin/env python3
"""Kills servers, ranks of a group and the router at random under load, and counts what clients notice.

  bench/kills.py [--kills 200] [--clients 4] [--direct 2] [--tokens 32] [--kinds LIST] [--seed 1] [--model FILE]

Two servers of one process and a group of two ranks (mpirun, --pp 2) answer behind `sluice route`. Clients stream completions
through the router, others from the group itself. Kinds of faults: `replica`, `router`, `rank0` and `rank1` are killed
(SIGKILL), `hang0` and `hang1` are ranks that are stopped (SIGSTOP). What has ended is started again at once on the same port,
as systemd or Kubernetes does it.

Held for each fault: a stream that was under way goes on or ends within 5 s; one that ends in good order has all its tokens,
those of one process, or an error event, and never a part of them; a new request through the router is answered within 5 s; a
group that has lost a rank ends within 5 s, its log names the rank, and where rank 0 is not the lost one its requests get an
error event. The exit code is 1 where one of these does not hold."""
import argparse
import asyncio
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parent.parent / "tests/python"))
from serving import BINARY, DEFAULT_MODEL  # noqa: E402
from streaming import Stream, completion, stream  # noqa: E402

KINDS = ("replica", "router", "rank1", "rank0", "hang1", "hang0")
LIMIT = 5.0
PROMPTS = [f"Number {i}: once upon a time there was" for i in range(6)]
BROKEN = (OSError, asyncio.IncompleteReadError, ValueError, IndexError)  # what a cut answer looks like to a reader
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader,tcp", "-n", "2"]


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as found:
        return found.getsockname()[1]


class Program:
    """A process that is started again when it has ended."""

    def __init__(self, *command):
        self.command, self.log, self.process = list(map(str, command)), tempfile.NamedTemporaryFile("w+", suffix=".log"), None
        self.stopping = False
        self.start()

    def start(self):
        self.process = subprocess.Popen(self.command, stdout=self.log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)

    async def supervise(self):
        while not self.stopping:
            if self.process.poll() is not None:
                self.start()
            await asyncio.sleep(0.02)

    def text(self):
        return Path(self.log.name).read_text(errors="replace")

    def rank(self, number):
        """The process of a rank of a group."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        for child in children:
            if f"OMPI_COMM_WORLD_RANK={number}\0" in Path(f"/proc/{child}/environ").read_text(errors="replace"):
                return int(child)
        raise RuntimeError(f"no rank {number} among {children}")

    def stop(self):
        self.stopping = True
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


class Fleet:
    """The programs, the clients, and what they have noticed."""

    def __init__(self, options):
        self.options, self.rng = options, random.Random(options.seed)
        serve = ["serve", "-m", options.model, "--ctx-size", 512, "--kv-tokens", 4096, "--threads", 1]
        *ports, self.router_port = [free_port() for _ in range(4)]
        self.group_port = ports[2]
        self.replicas = [Program(BINARY, *serve, "--port", port) for port in ports[:2]]
        self.group = Program(*MPIRUN, BINARY, *serve, "--port", self.group_port, "--pp", 2)
        urls = [word for port in ports for word in ("--replica", f"http://127.0.0.1:{port}")]
        self.router = Program(BINARY, "route", "--port", self.router_port, "-m", options.model, *urls)
        self.ports = {self.replicas[0]: ports[0], self.replicas[1]: ports[1], self.group: ports[2], self.router: self.router_port}
        self.open, self.ended, self.expected, self.counts, self.problems, self.over = [], [], {}, {}, [], False
        self.late = []  # those of the problems that are limits of time

    def problem(self, text):
        self.problems.append(text)
        print(f"PROBLEM: {text}", flush=True)

    async def answered(self, port, seconds):
        """Seconds until a whole answer came from there; None: too late."""
        begin = time.monotonic()
        while (left := seconds - (time.monotonic() - begin)) > 0:
            try:
                result = await asyncio.wait_for(stream(port, completion(PROMPTS[0], 2)), left)
                if result.complete and not result.error:
                    return time.monotonic() - begin
            except (*BROKEN, asyncio.TimeoutError):
                pass
            await asyncio.sleep(0.05)
        return None

    def judge(self, who, prompt, result):
        """How an answer ended that was not cut."""
        if result.error is not None:
            return "error event" if result.status == 200 else f"status {result.status}"
        if not (result.complete and result.tokens == self.options.tokens and result.text == self.expected[prompt]):
            self.problem(f"{who}: an answer ended as if it were complete: status {result.status}, {result.tokens} tokens, "
                         f"{result.text!r}")
        return "whole"

    async def client(self, who, port, number):
        rng = random.Random(number)
        while not self.over:
            prompt, flight = rng.choice(PROMPTS), Stream()
            flight.who = who
            self.open.append(flight)
            try:
                await stream(port, completion(prompt, self.options.tokens), result=flight)
                flight.how = self.judge(who, prompt, flight)
            except BROKEN:
                flight.ended = time.monotonic()
                flight.how = "cut" if flight.status else "refused"
            self.open.remove(flight)
            self.ended.append(flight)
            self.counts[who, flight.how] = self.counts.get((who, flight.how), 0) + 1
            await asyncio.sleep(0.05 if flight.how == "refused" else 0.005)

    def strike(self, kind):
        """The program that is struck."""
        if kind.startswith(("rank", "hang")):
            os.kill(self.group.rank(int(kind[-1])), signal.SIGKILL if kind.startswith("rank") else signal.SIGSTOP)
            return self.group
        program = self.router if kind == "router" else self.rng.choice(self.replicas)
        program.process.kill()
        return program

    async def settle(self, flights, begin):
        """Until each of them has ended or gone on."""
        def waits(flight):
            return not flight.ended and not (flight.times and flight.times[-1] > begin)
        while any(map(waits, flights)) and time.monotonic() - begin < 2 * LIMIT:
            await asyncio.sleep(0.01)
        return time.monotonic() - begin

    async def group_ends(self, process, begin):
        while process.poll() is None and time.monotonic() - begin < 2 * LIMIT:
            await asyncio.sleep(0.01)
        return time.monotonic() - begin

    async def fault(self, number, kind):
        flights, begin = list(self.open), time.monotonic()
        before, told = self.group.process, len(self.group.text())
        pid = self.group.rank(int(kind[-1])) if kind.startswith(("rank", "hang")) else None
        program = self.strike(kind)
        settled, served = await asyncio.gather(self.settle(flights, begin), self.answered(self.router_port, 2 * LIMIT))
        ended = await self.group_ends(before, begin) if pid else 0.0
        back = await self.answered(self.ports[program], 60)
        back = None if back is None else time.monotonic() - begin
        said = re.search(rf"rank {kind[-1]} \(process {pid} on \S+\) (has ended|hangs)", self.group.text()[told:]) if pid else None
        struck = [flight for flight in flights if flight.who == "group"] if pid else []
        for what, value in (("streams under way", settled), ("a new request", served), ("the end of the group", ended)):
            if value is None or value > LIMIT:
                self.problem(f"{kind}: {what} took {value} s")
                self.late.append(self.problems[-1])
        if pid and not said:
            self.problem(f"{kind}: no log names rank {kind[-1]}, process {pid}: {self.group.text()[told:][-1500:]}")
        if kind.endswith("1") and any(flight.how == "cut" for flight in struck):
            self.problem(f"{kind}: answers of the group were cut without an error event")
        if back is None:
            self.problem(f"{kind}: what was struck did not come back in 60 s")
        self.times.setdefault(kind, []).append((settled, served or 60, ended, back or 60))
        print(f"{number:4} {kind:8} streams settled {settled:5.2f} s   new request {served or -1:5.2f} s   group ended {ended:5.2f} s"
              f"   back {back or -1:5.2f} s   {' '.join(sorted(flight.how or '?' for flight in struck))}", flush=True)

    async def run(self):
        self.times = {}
        guards = [asyncio.create_task(program.supervise()) for program in self.ports]
        for program, port in self.ports.items():
            if await self.answered(port, 60) is None:
                raise RuntimeError(f"{program.command} did not start: {program.text()[-2000:]}")
        for prompt in PROMPTS:
            texts = {(await stream(port, completion(prompt, self.options.tokens))).text for port in self.ports.values()}
            assert len(texts) == 1, texts
            self.expected[prompt] = texts.pop()
        clients = [asyncio.create_task(self.client("router", self.router_port, i)) for i in range(self.options.clients)]
        clients += [asyncio.create_task(self.client("group", self.group_port, 100 + i)) for i in range(self.options.direct)]
        kinds = self.options.kinds.split(",")
        for number in range(1, self.options.kills + 1):
            kind = kinds[number - 1] if number <= len(kinds) else self.rng.choice(kinds)
            await asyncio.sleep(self.rng.uniform(0.2, 1.0))
            await self.answered(self.group_port, 60)  # a machine that stalls may have ended it
            await self.fault(number, kind)
        self.over = True
        _, hanging = await asyncio.wait(clients, timeout=60)
        if hanging:
            self.problem(f"{len(hanging)} clients hang")
        for task in (*clients, *guards):
            task.cancel()

    def stop(self):
        for program in self.ports:
            program.stop()

    def report(self):
        print(f"\n{'fault':8} {'times':>5}   streams settled p50/max   new request p50/max   group ended max   back p50/max (s)")
        for kind, rows in self.times.items():
            columns = [sorted(column) for column in zip(*rows)]
            settled, served, ended, back = columns
            middle = len(rows) // 2
            print(f"{kind:8} {len(rows):5}   {settled[middle]:10.2f} / {settled[-1]:.2f}      {served[middle]:10.2f} / {served[-1]:.2f}"
                  f"   {ended[-1]:14.2f}   {back[middle]:10.2f} / {back[-1]:.2f}")
        for (who, how), count in sorted(self.counts.items()):
            print(f"answers by {who}, {how}: {count}")
        print(f"{len(self.problems)} problems")


def play(options):
    """The fleet after a run, with its problems."""
    fleet = Fleet(options)
    try:
        asyncio.run(fleet.run())
    finally:
        fleet.stop()
    fleet.report()
    return fleet


def parse(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, default in (("kills", 200), ("clients", 4), ("direct", 2), ("tokens", 32), ("seed", 1)):
        parser.add_argument(f"--{name}", type=int, default=default)
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--model", default=str(DEFAULT_MODEL))
    return parser.parse_args(arguments)


def main():
    if shutil.which("mpirun") is None:
        sys.exit("kills.py: mpirun is not there (Debian package openmpi-bin)")
    sys.exit(1 if play(parse()).problems else 0)


if __name__ == "__main__":
    main()
