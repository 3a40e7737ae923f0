#!/usr/bin/env python3
"""Several ranks of one model under the real mpirun: golden miniatures by --tp, --ep, --sp, --cp and --pp, the same greedy answers as one rank, and
what is refused. Skips where mpirun or the plugin is missing."""
import json
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
from serving import BINARY

GOLDEN = Path(__file__).resolve().parent.parent / "golden/data"
PLUGIN = Path(BINARY).resolve().parent / "libsluice_mpi.so"
# Without binding: mpirun would give each of two ranks one core. Tests may run as root, and with more ranks than cores.
MPIRUN = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none", "--mca", "btl", "self,vader,tcp"]
PATIENT = ("--rank-timeout", "30")  # a rank that gets no core for a second is not lost here


def ranks(count, *arguments, check=True):
    result = subprocess.run([*MPIRUN, "-n", str(count), BINARY, *map(str, arguments), *PATIENT], capture_output=True, text=True,
                            stdin=subprocess.DEVNULL, timeout=300)
    assert not check or result.returncode == 0, result.stdout + result.stderr
    return result


def test_miniatures_pass_their_references_on_two_ranks():
    for family in ("llama", "gpt_oss", "deepseek"):
        assert "PASS" in ranks(2, "check", GOLDEN / family, "--tp", 2, "-t", 1).stdout, family


def test_miniatures_that_keep_states_pass_their_references_on_two_ranks():
    for family in ("qwen3_5", "kimi_linear", "falcon_h1", "zamba2", "jamba", "lfm2", "olmo_hybrid", "bitnet"):
        assert "PASS" in ranks(2, "check", GOLDEN / family, "--tp", 2, "-t", 1).stdout, family
    for count, family, *cut in ((4, "qwen3_next", "--tp", 4), (2, "falcon_h1", "--tp", 2, "--sp", "on"), (2, "qwen3_5_moe", "--tp", 2, "--ep", 2),
                                (4, "granite_hybrid", "--tp", 4)):
        assert "PASS" in ranks(count, "check", GOLDEN / family, *cut, "-t", 1).stdout, (family, cut)


def test_miniatures_pass_their_references_on_stages():
    for tensor, stages in ((1, 2), (2, 2)):
        result = ranks(tensor * stages, "check", GOLDEN / "llama", "--tp", tensor, "--pp", stages, "-t", 1)
        assert "PASS" in result.stdout, result.stdout


def test_miniatures_pass_their_references_with_their_experts_on_two_ranks():
    for family, *cut in (("mixtral",), ("gpt_oss",), ("qwen3_next",), ("gemma4_moe",), ("deepseek", "--tp", 2), ("gpt_oss", "--tp", 2)):
        assert "PASS" in ranks(2, "check", GOLDEN / family, "--ep", 2, *cut, "-t", 1).stdout, (family, cut)
    assert "PASS" in ranks(4, "check", GOLDEN / "mixtral", "--ep", 2, "--pp", 2, "-t", 1).stdout


def test_miniatures_pass_their_references_with_their_tokens_on_two_ranks():
    for family in ("llama", "gpt_oss", "deepseek", "cohere"):
        assert "PASS" in ranks(2, "check", GOLDEN / family, "--tp", 2, "--sp", "on", "-t", 1).stdout, family


def test_shared_tokens_need_less_memory():
    def scratch(*options):
        told = ranks(2, "check", GOLDEN / "llama", "--tp", 2, "-t", 1, "--verbose", *options).stderr
        found = re.findall(r"rank (\d): (\d+) bytes of scratch memory", told)
        assert {rank for rank, _ in found} == {"0", "1"}, told
        return max(int(size) for rank, size in found if rank == "1")
    whole, shared = scratch(), scratch("--sp", "on")
    assert shared < whole, (shared, whole)


def test_shared_tokens_need_a_tensor_cut():
    for command in (("check", GOLDEN / "llama"), ("serve", "-m", GOLDEN / "llama")):
        result = subprocess.run([BINARY, *command, "--sp", "on"], capture_output=True, text=True, timeout=60)
        assert result.returncode == 64 and "--sp is on and --tp is 1" in result.stderr, result.stderr
    result = subprocess.run([BINARY, "check", GOLDEN / "llama", "--sp", "yes"], capture_output=True, text=True, timeout=60)
    assert result.returncode == 64 and "yes" in result.stderr and "{off,on}" in result.stderr, result.stderr


def test_miniatures_pass_their_references_with_their_keys_on_two_ranks():
    for family in ("llama", "qwen3", "mixtral", "gpt2", "gpt_oss", "deepseek", "bloom", "qwen3_next", "zamba2", "jamba", "lfm2",
                   "glm_moe_dsa", "minimax_m3_published"):
        assert "PASS" in ranks(2, "check", GOLDEN / family, "--cp", 2, "-t", 1).stdout, family
    for family, *cut in (("llama", "--pp", 2), ("llama", "--tp", 2), ("gpt_oss", "--tp", 2), ("deepseek", "--tp", 2), ("mixtral", "--ep", 2)):
        assert "PASS" in ranks(4, "check", GOLDEN / family, "--cp", 2, *cut, "-t", 1).stdout, (family, cut)


def test_keys_that_cannot_be_shared_are_refused():
    for count, family, text, *cut in (
            (3, "minimax_m3_published", "layer 1 chooses blocks of 4 positions, which 3 ranks (--cp) cannot share", "--cp", 3),
            (2, "llama", "--cp is 2 and --sp is on", "--cp", 2, "--tp", 2, "--sp", "on")):
        result = ranks(count, "check", GOLDEN / family, "-t", 1, *cut, check=False)
        assert result.returncode != 0 and text in result.stderr, result.stderr
    result = ranks(3, "generate", "-i", "/dev/null", "-o", "/dev/null", "-m", GOLDEN / "llama", "-t", 1, "--cp", 3, check=False)
    assert result.returncode != 0 and "--block-size is 16, which 3 ranks (--cp) cannot share equally" in result.stderr, result.stderr


def test_stages_are_cut_by_hand():
    assert "PASS" in ranks(2, "check", GOLDEN / "llama", "--pp", 2, "--pp-layers", "1,1", "-t", 1).stdout
    for layers, text in (("1,2", "--pp-layers gives the stages 3 layers, the model has 2"),
                         ("2", "--pp-layers has 1 numbers and --pp is 2"), ("0,2", "--pp-layers '0,2' must be numbers from 1")):
        result = ranks(2, "check", GOLDEN / "llama", "--pp", 2, "--pp-layers", layers, "-t", 1, check=False)
        assert result.returncode != 0 and text in result.stderr, result.stderr


def test_messages_go_through_shared_memory():
    told = ranks(2, "check", GOLDEN / "llama", "--tp", 2, "-t", 1, "--verbose").stderr
    assert all(f"rank {rank}: messages by shared memory" in told for rank in (0, 1)), told


def test_experts_that_cannot_be_shared_are_refused():
    for count, family, text, *cut in (
            (3, "mixtral", "layer 0 has 4 experts, which 3 ranks (--ep) cannot share equally", "--ep", 3),
            (2, "llama", "no layer of the model has experts that 2 ranks (--ep) could share", "--ep", 2),
            (2, "mixtral", "--ep is 4 and --tp is 2", "--ep", 4, "--tp", 2)):
        result = ranks(count, "check", GOLDEN / family, "-t", 1, *cut, check=False)
        assert result.returncode != 0 and text in result.stderr, result.stderr


def test_what_does_not_divide_is_refused_with_the_numbers():
    result = ranks(3, "check", GOLDEN / "llama", "--tp", 3, "-t", 1, check=False)
    assert result.returncode != 0
    assert "which 3 ranks (--tp) cannot share" in result.stderr, result.stderr


def test_the_wrong_number_of_ranks_is_refused():
    alone = subprocess.run([BINARY, "check", GOLDEN / "llama", "--tp", "2"], capture_output=True, text=True, timeout=60)
    assert alone.returncode == 64 and "mpirun -n 2" in alone.stderr, alone.stderr
    more = ranks(2, "check", GOLDEN / "llama", "--tp", 4, "-t", 1, check=False)
    assert "mpirun has started 2 ranks, the options ask for 4" in more.stderr, more.stderr


def test_a_program_without_open_mpi_names_the_packages():
    with tempfile.TemporaryDirectory() as folder:
        program = shutil.copy(BINARY, folder)  # without the plugin beside it
        for command in (("serve", "-m", GOLDEN / "llama"), ("check", GOLDEN / "llama")):
            result = subprocess.run([program, *command, "--tp", "2"], capture_output=True, text=True, timeout=60)
            assert result.returncode == 69 and "libopenmpi-dev and openmpi-bin" in result.stderr, result.stderr
        broken = Path(folder) / PLUGIN.name
        broken.write_bytes(b"no library")  # as where libmpi is missing: it is there and cannot be loaded
        result = subprocess.run([program, "serve", "-m", GOLDEN / "llama", "--tp", "2"], capture_output=True, text=True, timeout=60)
        assert result.returncode == 69 and "install the Debian package openmpi-bin" in result.stderr, result.stderr


def same_answers(family, *cuts):
    """Of seven requests at once, by each cut (ranks, options) as by one rank."""
    with tempfile.TemporaryDirectory() as folder:
        source = Path(folder) / "in.jsonl"
        lines = [{"id": f"r{i}", "prompt": [1 + i, 5, 9, 2 + i], "max_tokens": 8, "temperature": 0, "ignore_eos": True} for i in range(6)]
        lines.append(lines[0] | {"id": "long", "prompt": [3 + i * 5 % 50 for i in range(40)]})  # several KV blocks
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        answers = []
        for count, *cut in ((1,), *cuts):
            out = Path(folder) / f"out{len(answers)}.jsonl"
            arguments = ("generate", "-i", source, "-o", out, "-m", GOLDEN / family, "-t", 1, "--kv-tokens", 512, *cut)
            if count == 1:
                subprocess.run([BINARY, *map(str, arguments)], check=True, capture_output=True, timeout=120)
            else:
                ranks(count, *arguments)
            found = [json.loads(line) for line in out.read_text().splitlines()]
            answers.append({answer["id"]: answer["choices"][0]["token_ids"] for answer in found})
        assert len(answers[0]) == 7 and all(other == answers[0] for other in answers), (family, answers)


def test_generate_gives_the_answers_of_one_rank():
    same_answers("llama", (2, "--tp", 2), (2, "--pp", 2), (4, "--tp", 2, "--pp", 2), (2, "--tp", 2, "--sp", "on"), (2, "--cp", 2),
                 (4, "--cp", 2, "--tp", 2))


def test_ranks_with_their_part_of_states_give_the_answers_of_one_rank():
    for family in ("qwen3_5", "qwen3_next", "granite_hybrid", "zamba2"):
        same_answers(family, (2, "--tp", 2), (2, "--tp", 2, "--sp", "on"), (2, "--cp", 2))
    same_answers("nemotron_3", (2, "--tp", 2, "--ep", 2))


def test_three_stages_with_three_steps_in_flight_give_the_answers_of_one_rank():
    serving.need_model()
    with tempfile.TemporaryDirectory() as folder:
        source, one, staged = (Path(folder) / name for name in ("in.jsonl", "one.jsonl", "staged.jsonl"))
        lines = [{"id": f"r{i}", "prompt": [1000 + 7 * i + j for j in range(4 + 150 * i)], "max_tokens": 6, "temperature": 0,
                  "ignore_eos": True, "logprobs": 2} for i in range(5)]  # chunks of prompts beside answers
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        flags = ("-m", serving.DEFAULT_MODEL, "-t", 1, "--kv-tokens", 4096, "--ctx-size", 1024)
        subprocess.run([BINARY, "generate", "-i", source, "-o", one, *map(str, flags)], check=True, capture_output=True, timeout=300)
        ranks(3, "generate", "-i", source, "-o", staged, "--pp", 3, "--pp-micro-batches", 3, *flags)
        answers = [{answer["id"]: answer["choices"] for answer in map(json.loads, path.read_text().splitlines())}
                   for path in (one, staged)]
        assert len(answers[0]) == 5 and answers[0] == answers[1], answers


def test_stages_are_cut_by_the_times_of_their_layers():
    serving.need_model()
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        source.write_text(json.dumps({"id": "a", "prompt": "one two", "max_tokens": 2}) + "\n")
        flags = ("-i", source, "-o", out, "--force", "-m", serving.DEFAULT_MODEL, "--pp", 2, "--pp-micro-batches", 2, "-t", 1,
                 "--kv-tokens", 1024, "--ctx-size", 512, "--verbose")
        timed = "the slowest takes"
        done = ranks(2, "generate", *flags).stderr
        counts = re.search(r"stages of (\d+)\+(\d+) layers: the slowest takes [\d.]+ ms of a step of 8 tokens", done)
        assert counts and sum(map(int, counts.groups())) == 30, done
        assert timed not in ranks(2, "generate", *flags, "--pp-layers", "14,16").stderr


def test_stages_that_share_their_cores_take_turns():
    serving.need_model()
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        source.write_text(json.dumps({"id": "a", "prompt": "one two", "max_tokens": 2}) + "\n")
        cores = len(os.sched_getaffinity(0))
        for threads, turns in ((cores, True), (cores // 2, False)):
            if threads == 0:
                continue
            done = ranks(2, "generate", "-i", source, "-o", out, "--force", "-m", serving.DEFAULT_MODEL, "--pp", 2,
                         "-t", threads, "--kv-tokens", 1024, "--ctx-size", 512)
            assert ("2 stages take turns" in done.stderr) == turns, done.stderr


def test_a_rank_that_hangs_ends_a_group_without_requests():
    serving.need_model()
    with tempfile.NamedTemporaryFile("w+", suffix=".log") as log:
        group = subprocess.Popen([*MPIRUN, "-n", "2", BINARY, "serve", "-m", serving.DEFAULT_MODEL, "--port", "0", "--pp", "2", "-t", "1",
                                  "--kv-tokens", "1024", "--ctx-size", "512", "--rank-timeout", "4"],
                                 stdout=log, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
        try:
            text = Path(log.name).read_text
            wait_until(lambda: "API base" in text(), 120)
            children = Path(f"/proc/{group.pid}/task/{group.pid}/children").read_text().split()
            rank, = (child for child in children if "OMPI_COMM_WORLD_RANK=1\0" in Path(f"/proc/{child}/environ").read_text())
            os.kill(int(rank), signal.SIGSTOP)
            wait_until(lambda: group.poll() is not None, 60)
            assert group.returncode != 0
            assert re.search(rf"rank 1 \(process {rank} on \S+\) hangs: it was not heard of for 4 s", text()), text()
        finally:
            group.terminate()
            group.wait()


def test_a_rank_that_hangs_within_a_sum_ends_the_group():
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        lines = [{"id": f"r{i}", "prompt": [1 + i % 40, 5, 9], "max_tokens": 60, "temperature": 0, "ignore_eos": True} for i in range(4000)]
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        group = subprocess.Popen([*MPIRUN, "-n", "2", BINARY, "generate", "-i", source, "-o", out, "-m", GOLDEN / "llama", "--tp", "2", "-t", "1",
                                  "--kv-tokens", "2048", "--rank-timeout", "2"],
                                 stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
        try:
            wait_until(lambda: out.exists() and out.stat().st_size > 0, 60)  # sums are under way
            children = Path(f"/proc/{group.pid}/task/{group.pid}/children").read_text().split()
            rank, = (child for child in children if "OMPI_COMM_WORLD_RANK=1\0" in Path(f"/proc/{child}/environ").read_text())
            os.kill(int(rank), signal.SIGSTOP)
            told, _ = group.communicate(timeout=60)
            assert group.returncode != 0
            assert re.search(rf"rank 1 \(process {rank} on \S+\) hangs: it was not heard of for 2 s", told), told[-2000:]
        finally:
            group.terminate()
            group.wait()


def wait_until(condition, seconds):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not within {seconds} s"
        time.sleep(0.02)


def main():
    if shutil.which("mpirun") is None or not PLUGIN.exists():
        missing = "mpirun" if shutil.which("mpirun") is None else PLUGIN.name
        print(f"ranks_test: {missing} is not there (Debian packages libopenmpi-dev and openmpi-bin)\n0 passed, 0 failed, 1 skipped")
        return 0
    return serving.run_tests(serving.tests_of(sys.modules[__name__]))


if __name__ == "__main__":
    sys.exit(main())
