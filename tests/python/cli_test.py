#!/usr/bin/env python3
"""The program as people and scripts use it: flags, environment, exit codes, files and pipes.

SLUICE_BINARY names the program, SLUICE_MODELS the folder of the default model. What needs the default model is skipped
where it is missing; the rest runs on the tiny models of tests/runtime/data.
"""
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = str(Path(os.environ.get("SLUICE_BINARY", ROOT / "build/release/sluice")).resolve())
MODELS = Path(os.environ.get("SLUICE_MODELS", ROOT / ".models")).resolve()
MODEL = MODELS / "SmolLM2-135M-Instruct.Q4_1.gguf"
TINY = ROOT / "tests/runtime/data"
VERBS = ["run", "chat", "generate", "perplexity", "check", "describe", "list", "completion"]


class Skip(Exception):
    pass


def sluice(*arguments, stdin="", env=None, timeout=300):
    """Runs the program without a terminal and without any SLUICE_ variable but those given."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
    clean |= {"SLUICE_MODELS": str(MODELS)} | (env or {})
    return subprocess.run([BINARY, *map(str, arguments)], input=stdin, env=clean, text=True, capture_output=True, timeout=timeout)


def expect(result, code, *texts):
    assert result.returncode == code, f"exit {result.returncode}, wanted {code}: {result.stderr.strip()[-400:]}"
    for text in texts:
        assert text in result.stdout + result.stderr, f"'{text}' is not in: {(result.stdout + result.stderr)[-600:]}"
    return result


def need_model():
    if not MODEL.exists():
        raise Skip(f"the default model is not at {MODEL}")


def greedy(*arguments, **options):
    return expect(sluice("run", "--raw", "--temp", 0, *arguments, **options), 0).stdout


# -- words -----------------------------------------------------------------------------------------------------------

def test_version():
    text = expect(sluice("--version"), 0).stdout
    for word in ("sluice 0.", "compiler ", "architecture ", "device ref", "device cpu", "device cuda"):
        assert word in text, text


def test_help_of_each_verb():
    text = expect(sluice("--help"), 0).stdout
    for verb in VERBS:
        assert verb in text
        assert "Usage: sluice " + verb in expect(sluice(verb, "--help"), 0).stdout
    assert expect(sluice(), 0).stdout == text


def test_unknown_words_are_corrected():
    expect(sluice("run", "--max-tokns", 3), 64, "unknown flag '--max-tokns'", "'--max-tokens'", "try 'sluice run --help'")
    expect(sluice("generat"), 64, "unknown verb 'generat'", "'generate'")
    expect(sluice("--versoin"), 64, "'--version'")
    expect(sluice("run", "--zzzzzz"), 64, "unknown flag '--zzzzzz'")
    expect(sluice("check"), 64, "DIR")
    expect(sluice("run", "-n", "many"), 64, "max-tokens")
    expect(sluice("run", "--temp", "3"), 64, "temp")
    expect(sluice("run", "--kv-type", "f64"), 64, "f64")
    expect(sluice("run", "-s", "1.5"), 64, "seed", "'1.5'")
    expect(sluice("bench", "--pp", "", "--tg", ""), 64, "nothing to measure")
    expect(sluice("completion", "tcsh"), 64)


def test_words_that_a_verb_does_not_take():
    for words in (("bench", "more"), ("serve", "extra"), ("list", "all"), ("chat", "hello"), ("describe", TINY / "expert", "more"),
                  ("generate", "in.jsonl"), ("healthcheck", "now"), ("completion", "bash", "zsh")):
        result = expect(sluice(*words), 64, f"unknown argument '{words[-1]}'", f"sluice {words[0]} --help")
        assert result.stdout == "", result.stdout


def test_perplexity():
    need_model()
    text = " ".join(f"{i} little words about {i * 7 % 13} other ones." for i in range(60))
    found = []
    for repack in ("on", "off"):
        result = expect(sluice("perplexity", "-m", MODEL, "--device", "cpu", "--repack", repack, "-c", 128, "--contexts", 4,
                               "--format", "json", stdin=text), 0)
        found.append(json.loads(result.stdout))
        assert found[-1]["contexts"] == 4 and found[-1]["scored"] == 4 * 63, found
    first, second = (result["perplexity"] for result in found)
    # Tiles of bf16 multiply some types, repacked, in another arithmetic; over fewer tokens that would show.
    tiles = "amx_bf16" in Path("/proc/cpuinfo").read_text()
    assert second > 1 and abs(first / second - 1) <= (0.003 if tiles else 0), found
    expect(sluice("perplexity", "-m", MODEL, "-c", 32, stdin="few"), 64, "fills no context of 32")


def test_compare():
    need_model()
    text = " ".join(f"{i} little words about {i * 7 % 13} other ones." for i in range(60))
    compared = []
    for kv in ("f16", "int8"):
        result = expect(sluice("compare", MODEL, MODEL, "--device", "cpu", "--kv-type-b", kv, "-c", 32, "--contexts", 2, "--format",
                               "json", stdin=text), 0)
        compared.append(json.loads(result.stdout))
    same, rounded = compared
    assert same["kl_divergence"] == 0 and same["top1_agreement"] == 1 and same["perplexity_a"] == same["perplexity_b"], same
    assert 0 < rounded["kl_divergence"] < 0.05 and rounded["scored"] == 2 * 15, rounded
    expect(sluice("compare", MODEL), 64, "B is required")


def test_quantize():
    source = ROOT / "tests/golden/data/quantized/gguf-iq4_nl"
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "out.gguf"
        for kind, tolerance in (("q8_0", 2e-2), ("q6_k", 5e-2), ("q4_k_m", 0.3), ("bf16", 1e-2)):
            expect(sluice("quantize", source / "model.gguf", out, "--type", kind, "--overwrite", "on"), 0)
            expect(sluice("check", source, "-m", out, "--device", "ref", "--tolerance", tolerance, "--kv-type", "f16"), 0, "PASS")
            assert not out.with_suffix(".gguf.part").exists()
        whole = out.read_bytes()
        expect(sluice("quantize", source / "model.gguf", out, "--type", "bf16"), 64, "is there already")
        # A part that was left behind is taken up where it ends.
        part = Path(folder) / "again.gguf.part"
        part.write_bytes(whole[:len(whole) // 2])
        expect(sluice("quantize", source / "model.gguf", Path(folder) / "again.gguf", "--type", "bf16"), 0)
        assert (Path(folder) / "again.gguf").read_bytes() == whole
        expect(sluice("quantize", source / "model.gguf", Path(folder) / "x.gguf", "--type", "q9_9"), 64, "'q9_9'")
        (Path(folder) / "short.gguf").write_bytes(whole[:100])
        expect(sluice("quantize", Path(folder) / "short.gguf", Path(folder) / "x.gguf", "--type", "q8_0"), 74, "short.gguf")
        expect(sluice("quantize", source, Path(folder) / "x.gguf", "--type", "q8_0"), 64, "is a folder")
    expect(sluice("quantize", "a.gguf"), 64, "OUT is required")


def test_quantize_with_calibration():
    """Errors count by what columns are multiplied with: on the text of the calibration, the result is nearer to the source."""
    need_model()
    text = "/usr/share/common-licenses/GPL-3"
    with tempfile.TemporaryDirectory() as folder:
        source, plain, calibrated = (Path(folder) / name for name in ("f16.gguf", "plain.gguf", "calibrated.gguf"))
        expect(sluice("quantize", MODEL, source, "--type", "f16"), 0)
        expect(sluice("quantize", source, plain, "--type", "q4_0"), 0)
        result = expect(sluice("quantize", source, calibrated, "--type", "q4_0", "--calibrate", text, "--contexts", 2), 0)
        assert "context 2 of 2" in result.stderr
        assert b"quantize.imatrix.dataset" in calibrated.read_bytes()
        far = {}
        for name in (plain, calibrated):
            result = expect(sluice("compare", source, name, "-f", text, "--contexts", 1, "--format", "json"), 0)
            far[name] = json.loads(result.stdout)["kl_divergence"]
        assert far[calibrated] < far[plain], far
    expect(sluice("quantize", MODEL, "/nowhere/x.gguf", "--type", "q4_0", "--calibrate", "/nowhere/text"), 74, "/nowhere/text")


def test_quantize_folder():
    source = ROOT / "tests/golden/data/llama"
    with tempfile.TemporaryDirectory() as folder:
        for kind, tolerance in (("fp8", 0.1), ("int8", 0.03), ("w4a16", 0.35), ("awq", 0.35)):
            out = Path(folder) / kind
            expect(sluice("quantize", source, out, "--type", kind), 0)
            assert not out.with_suffix(".part").exists() and not (out / ".quantize").exists()
            errors = re.findall(r"relative error (\S+)", sluice("check", source, "-m", out, "--device", "ref").stdout)
            assert len(errors) == 3 and max(map(float, errors)) < tolerance, (kind, errors)
            assert "quantization_config" in json.loads((out / "config.json").read_text())
            expect(sluice("quantize", source, out, "--type", kind), 64, "is there already")
            expect(sluice("quantize", out, Path(folder) / "x", "--type", kind), 64, "quantised already")
        # A part that was left behind is taken up.
        whole = (Path(folder) / "awq/model.safetensors").read_bytes()
        part = Path(folder) / "again.part"
        part.mkdir()
        (part / ".quantize").write_text("awq in groups of 32\n")
        (part / "model.safetensors.part").write_bytes(whole[:len(whole) * 2 // 3])
        expect(sluice("quantize", source, Path(folder) / "again", "--type", "awq"), 0)
        assert (Path(folder) / "again/model.safetensors").read_bytes() == whole
    expect(sluice("quantize", source, "/nowhere/x", "--type", "q4_0"), 64, "is a folder")


def test_flags_of_llama_cpp():
    for words, answer in ((("run", "-ngl", 99), "'-ngl' is '--device' here"), (("serve", "-ctk", "q8_0"), "'-ctk' is '--kv-type' here"),
                          (("serve", "-ctv", "f16"), "'-ctv' is '--kv-type' here"), (("run", "-fa"), "'-fa' is not needed"),
                          (("serve", "--flash-attn", "on"), "'--flash-attn' is not needed"), (("run", "-cnv"), "the verb 'chat'"),
                          (("list", "-np", 4), "'-np' is '--max-seqs' here, which this verb does not take")):
        result = expect(sluice(*words), 64, answer)
        assert result.stderr.count("\n") == 1, result.stderr
    expect(sluice("run", "-hf", "some/where:Q4_K_M", "-p", "x"), 74, "'hf:some/where:Q4_K_M'")
    expect(sluice("serve", "-np", "none"), 64, "--max-seqs")
    expect(sluice("serve", "-n", "none"), 64, "--max-output-tokens")
    expect(sluice("serve", "-b", "none"), 64, "--max-step-tokens")
    need_model()
    known = ("-m", MODEL, "-p", PROMPT, "-n", 4, "--temp", 0, "-c", 256, "-t", 2, "-np", 1, "-b", 64, "-s", 1, "--top-k", 40, "--top-p", 0.95,
             "--min-p", 0.05, "--repeat-penalty", 1)
    expect(sluice("run", *known), 0)


def test_streams_that_are_no_good():
    """Standard output without room, standard input that is closed."""
    clean = {key: value for key, value in os.environ.items() if not key.startswith("SLUICE_")}
    with open("/dev/full", "wb") as full:
        for arguments in (["--version"], ["completion", "bash"], ["describe", str(TINY / "expert")]):
            result = subprocess.run([BINARY, *arguments], stdin=subprocess.DEVNULL, stdout=full, stderr=subprocess.PIPE, env=clean, timeout=60)
            assert result.returncode == 74 and result.stderr.startswith(b"sluice: "), (arguments, result)
    closed = subprocess.run(["bash", "-c", 'exec "$0" render --input - --template /dev/null <&-', BINARY], env=clean, text=True,
                            capture_output=True, timeout=60)
    assert closed.returncode == 74 and "incomplete JSON" in closed.stderr, closed


def test_folders_are_no_texts():
    expect(sluice("run", "-f", TINY), 74, str(TINY), "directory")
    expect(sluice("render", "--input", TINY), 74, str(TINY), "directory")
    with tempfile.TemporaryDirectory() as name:
        expect(sluice("generate", "-m", TINY / "expert", "-i", TINY, "-o", Path(name) / "out.jsonl"), 74, str(TINY))
        assert not (Path(name) / "out.jsonl").exists()


def test_pipes_are_no_templates():
    """A pipe without a writer is refused at once, as a template and beside a tokenizer."""
    with tempfile.TemporaryDirectory() as name:
        pipe, variables = Path(name) / "pipe.jinja", Path(name) / "variables.json"
        os.mkfifo(pipe)
        variables.write_text("{}")
        expect(sluice("render", "--input", variables, "--template", pipe), 74, str(pipe), "is not a regular file")


def test_completion():
    for shell in ("bash", "zsh", "fish"):
        script = expect(sluice("completion", shell), 0).stdout
        for verb in VERBS:
            assert verb in script, (shell, verb)
        assert "max-tokens" in script
        if shutil.which(shell) and shell != "fish":
            checked = subprocess.run([shell, "-n"], input=script, text=True, capture_output=True)
            assert checked.returncode == 0, checked.stderr


# -- files that are not models -----------------------------------------------------------------------------------------

def test_models_that_are_missing():
    with tempfile.TemporaryDirectory() as empty:
        env = {"SLUICE_MODELS": empty, "HOME": empty}
        expect(sluice("run", "-p", "x", env=env), 69, "default model", "--model")
        expect(sluice("list", env=env), 0, "no models found")
    expect(sluice("run", "-m", "/nowhere/model.gguf", "-p", "x"), 74, "/nowhere/model.gguf")
    expect(sluice("describe", "/nowhere"), 74, "/nowhere")
    expect(sluice("check", "/nowhere"), 74, "/nowhere")


def test_models_that_are_damaged():
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pointer = folder / "pointer.gguf"
        pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:" + "0" * 64 + "\nsize 98362432\n")
        expect(sluice("run", "-m", pointer, "-p", "x"), 74, "lfs")
        (folder / "empty.gguf").touch()
        expect(sluice("describe", folder / "empty.gguf"), 74, "empty")
        (folder / "noise.gguf").write_bytes(b"GGUF" + bytes([3, 0, 0, 0]) + bytes([255] * 64))
        expect(sluice("describe", folder / "noise.gguf"), 74, "noise.gguf")
        whole = shutil.copytree(TINY / "expert", folder / "cut")
        weights = (whole / "model.safetensors").read_bytes()
        (whole / "model.safetensors").write_bytes(weights[:len(weights) // 2])
        expect(sluice("describe", whole), 74, "model.safetensors")
        (whole / "config.json").write_text("{not json")
        expect(sluice("describe", whole), 74, "config.json")
        config = json.loads((TINY / "expert/config.json").read_text()) | {"model_type": "nosuch", "architectures": ["NoSuchModel"]}
        (whole / "config.json").write_text(json.dumps(config))
        (whole / "model.safetensors").write_bytes(weights)
        expect(sluice("describe", whole), 78, "NoSuchModel")
        (folder / "old.gguf").write_bytes(b"GGUF" + bytes([1, 0, 0, 0]) + bytes(64))
        expect(sluice("describe", folder / "old.gguf"), 78, "version is 1")
        if MODEL.exists():
            with open(MODEL, "rb") as file:
                (folder / "half.gguf").write_bytes(file.read(40_000_000))
            expect(sluice("run", "-m", folder / "half.gguf", "-p", "x"), 74, "half.gguf")


def test_a_model_without_a_tokenizer_is_for_ids_only():
    result = sluice("run", "-m", TINY / "expert", "-p", "x")
    assert result.returncode in (74, 78) and "tokenizer" in result.stderr, result.stderr


# -- describe, check, list ---------------------------------------------------------------------------------------------

def test_describe():
    text = expect(sluice("describe", TINY / "expert"), 0).stdout
    for word in ("LlamaForCausalLM", "parameters", "KV", "rope"):
        assert word in text, text
    assert "window" in expect(sluice("describe", TINY / "windowed"), 0).stdout


def test_check_says_pass_or_fail():
    golden = ROOT.parent / "shared/golden/llama"
    if not golden.exists():
        raise Skip(f"no references at {golden}")
    assert expect(sluice("check", golden), 0).stdout.splitlines()[-1] == "PASS"
    assert expect(sluice("check", golden, "--tolerance", 0), 1).stdout.splitlines()[-1] == "FAIL"
    assert expect(sluice("check", golden, "--device", "ref", "--threads", 1), 0).stdout.splitlines()[-1] == "PASS"
    expect(sluice("check", TINY / "expert"), 74, "golden.json")


def fill_home(home):
    """Stores of three other programs; each holds one tiny file."""
    gguf = ROOT.parent / "shared/golden-gguf/qwen2.gguf"
    if not gguf.exists():
        raise Skip(f"no tiny GGUF at {gguf}")
    hub = home / ".cache/huggingface/hub/models--some--tiny"
    (hub / "snapshots/abc").mkdir(parents=True)
    (hub / "refs").mkdir()
    (hub / "refs/main").write_text("abc\n")
    for file in (TINY / "expert").iterdir():
        (hub / "snapshots/abc" / file.name).symlink_to(file)
    store = home / ".ollama/models"
    manifest = store / "manifests/registry/library/small/latest"
    manifest.parent.mkdir(parents=True)
    (store / "blobs").mkdir()
    digest = hashlib.sha256(gguf.read_bytes()).hexdigest()
    (store / f"blobs/sha256-{digest}").symlink_to(gguf)
    layers = [{"mediaType": "application/vnd.ollama.image.model", "digest": "sha256:" + digest, "size": gguf.stat().st_size}]
    manifest.write_text(json.dumps({"layers": layers}))
    studio = home / ".lmstudio/models/someone/thing/thing-q8.gguf"
    studio.parent.mkdir(parents=True)
    studio.symlink_to(gguf)
    return studio


def test_list_finds_what_other_programs_keep():
    with tempfile.TemporaryDirectory() as name:
        studio = fill_home(Path(name))
        env = {"HOME": name, "XDG_CACHE_HOME": "", "HF_HOME": "", "HF_HUB_CACHE": "", "OLLAMA_MODELS": ""}
        text = expect(sluice("list", env=env), 0).stdout
        for word in ("hf:some/tiny", "ollama:small:latest", str(studio), "Hugging Face cache", "Ollama", "LM Studio"):
            assert word in text, text
        expect(sluice("describe", "some/tiny", env=env), 0, "LlamaForCausalLM")
        expect(sluice("describe", "hf:some/tiny", env=env), 0, "LlamaForCausalLM")
        expect(sluice("describe", "ollama:small", env=env), 0, "qwen2")
        expect(sluice("describe", "ollama:small:latest", env=env), 0, "qwen2")
        expect(sluice("describe", "ollama:other", env=env), 74, "ollama:other")
        expect(sluice("describe", "../some/tiny", env=env), 74)


# -- run ---------------------------------------------------------------------------------------------------------------

PROMPT = "The capital of France is"


def test_run_reads_prompt_file_and_pipe():
    need_model()
    expected = greedy("-p", PROMPT, "-n", 12)
    assert "Paris" in expected, expected
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
        file.write(PROMPT)
        file.flush()
        assert greedy("-f", file.name, "-n", 12) == expected
    assert greedy("-n", 12, stdin=PROMPT) == expected
    assert greedy("-f", "-", "-n", 12, stdin=PROMPT) == expected
    expect(sluice("run"), 64, "no prompt")
    expect(sluice("run", "-f", "/nowhere.txt"), 74, "/nowhere.txt")


def test_run_draws_nothing_without_a_terminal():
    need_model()
    result = expect(sluice("run", "-p", "Hello", "-n", 4, "--temp", 0), 0, "tok/s")
    assert "\033" not in result.stderr and "\r" not in result.stderr
    assert len(result.stderr.splitlines()) == 1, result.stderr


def test_run_takes_flags_over_environment():
    need_model()
    four = greedy("-p", PROMPT, "-n", 4)
    assert greedy("-p", PROMPT, env={"SLUICE_MAX_TOKENS": "4"}) == four
    assert greedy("-p", PROMPT, "--max_tokens", 4) == four
    assert greedy("-p", PROMPT, "-n", 4, env={"SLUICE_MAX_TOKENS": "9"}) == four
    assert greedy("-n", 4, env={"SLUICE_PROMPT": PROMPT}) == four
    expect(sluice("run", "-p", "x", env={"SLUICE_MAX_TOKENS": "lots"}), 64, "lots")


def test_run_repeats_itself_with_a_seed():
    need_model()
    flags = ("run", "-p", "Tell me a story.", "-n", 24, "--temp", 1.2, "--top-k", 0, "--top-p", 1)
    first, second = (expect(sluice(*flags, "--seed", 5), 0).stdout for _ in range(2))
    assert first == second
    assert expect(sluice(*flags, "--seed", 6), 0).stdout != first
    assert expect(sluice(*flags), 0).stdout != expect(sluice(*flags), 0).stdout


def test_run_refuses_what_it_would_leave_out():
    need_model()
    expect(sluice("run", "-p", PROMPT, "-n", 0), 64, "--max-tokens is 0")
    expect(sluice("run", "-p", PROMPT, "-n", 1), 0, "answer 1 token")
    expect(sluice("run", "-p", PROMPT, "--raw", "--system", "x"), 64, "--system", "--raw")


def test_run_stops_before_a_stop_string():
    need_model()
    text = greedy("-p", PROMPT, "-n", 12)
    stop = text.strip()[5:9]
    assert greedy("-p", PROMPT, "-n", 12, "--stop", stop).rstrip("\n") == text[:text.index(stop)]
    assert greedy("-p", PROMPT, "-n", 12, "--stop", "never in there", "--stop", stop).rstrip("\n") == text[:text.index(stop)]


def test_run_notices_a_file_that_shrinks():
    need_model()
    with tempfile.TemporaryDirectory() as name:
        copy = Path(name) / "shrinking.gguf"
        shutil.copy(MODEL, copy)
        child = subprocess.Popen([BINARY, "run", "-m", str(copy), "-p", "x", "--ignore-eos", "--threads", "1"],
                                 stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        try:
            child.stdout.read(1)
            os.truncate(copy, 4096)
            os.set_blocking(child.stdout.fileno(), False)
            _, errors = child.communicate(timeout=60)
        finally:
            child.kill()
        if child.returncode == 0:
            raise Skip("every weight had been repacked: the file was not read any more")
        assert child.returncode == 74 and b"changed on disk" in errors and b"shrinking.gguf" in errors, (child.returncode, errors)


# -- generate ----------------------------------------------------------------------------------------------------------

def write_lines(path, requests):
    path.write_text("".join((request if isinstance(request, str) else json.dumps(request)) + "\n" for request in requests))


def read_lines(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_generate_answers_ids_without_a_tokenizer():
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "in.jsonl", Path(name) / "out.jsonl"
        write_lines(source, [
            {"id": "a", "prompt": [5, 6, 7], "max_tokens": 6, "temperature": 0, "ignore_eos": True, "logprobs": 2},
            {"id": "b", "prompt": [5, 6, 7], "max_tokens": 6, "use_beam_search": True, "best_of": 3, "n": 2},
            {"id": "c", "prompt": [9], "max_tokens": 5, "penalty_alpha": 0.6, "top_k": 4, "ignore_eos": True},
            {"id": "d", "prompt": [9, 8], "max_tokens": 5, "contrastive_decoding": {"alpha": 0.1}, "temperature": 0, "ignore_eos": True},
            {"id": "e", "prompt": [4] * 20, "max_tokens": 3, "temperature": 0.8, "seed": 3, "n": 3, "at": 0.05, "ignore_eos": True},
        ])
        flags = ("generate", "-i", source, "-o", target, "-m", TINY / "expert")
        expect(sluice(*flags, "--amateur", TINY / "amateur"), 0)
        answers = {line["id"]: line for line in read_lines(target)}
        assert sorted(answers) == list("abcde"), answers
        assert [len(answers[key]["choices"]) for key in "abcde"] == [1, 2, 1, 1, 3]
        first = answers["a"]["choices"][0]
        assert len(first["token_ids"]) == 6 and first["finish_reason"] == "length" and len(first["logprobs"]) == 6
        assert answers["a"]["usage"]["prompt_tokens"] == 3
        assert {"queue", "ttft", "tpot", "latency"} <= set(answers["a"]["timings"])
        before = target.read_bytes()
        expect(sluice(*flags), 64, str(target), "--force", "--resume")
        assert target.read_bytes() == before
        expect(sluice(*flags, "--force"), 0)
        assert "--amateur" in {line["id"]: line for line in read_lines(target)}["d"]["error"]["message"]


def test_generate_answers_bad_lines_with_errors():
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "in.jsonl", Path(name) / "out.jsonl"
        good = {"id": "good", "prompt": [5], "max_tokens": 2}
        write_lines(source, ["{not json", "[1]", "", {"id": "none"}, {"id": "word", "prompt": "text"}, {"id": "high", "prompt": [96]},
                             {"id": "hot", "prompt": [5], "temperature": 9}, {"id": "long", "prompt": [5], "max_tokens": 10**6},
                             {"id": "type", "prompt": [5], "max_tokens": "many"}, {"id": "void", "prompt": []},
                             {"id": 77, "prompt": [5], "at": -1}, good])
        expect(sluice("generate", "-i", source, "-o", target, "-m", TINY / "expert"), 0)
        answers = {line["id"]: line for line in read_lines(target)}
        assert sorted(answers) == sorted(["1", "2", "none", "word", "high", "hot", "long", "type", "void", "77", "good"]), sorted(answers)
        for key, answer in answers.items():
            assert ("error" in answer) == (key != "good"), answer
            assert key == "good" or answer["error"]["message"]
        expect(sluice("generate", "-i", "/nowhere", "-o", target, "-m", TINY / "expert", "--force"), 74, "/nowhere")
        expect(sluice("generate", "-i", source, "-o", "/nowhere/out", "-m", TINY / "expert"), 74, "/nowhere/out")
        expect(sluice("generate", "-i", source), 64, "--output")


def test_generate_goes_on_after_a_kill():
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "in.jsonl", Path(name) / "out.jsonl"
        requests = [{"id": f"r{i}", "prompt": [3 + i % 90, 4, 5 + i % 7], "max_tokens": 60, "seed": i, "ignore_eos": True}
                    for i in range(120)]
        write_lines(source, requests)
        flags = ["generate", "-i", source, "-o", target, "-m", TINY / "expert", "--max-seqs", "4", "--device", "ref"]
        for _ in range(10):  # until a kill comes before the end
            child = subprocess.Popen([BINARY, *map(str, flags), "--force"], stdin=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while child.poll() is None and (not target.exists() or target.read_bytes().count(b"\n") < 20):
                time.sleep(0.02)
            child.send_signal(signal.SIGKILL)
            child.wait()
            before = target.read_bytes()
            if before.count(b"\n") < len(requests):
                break
        assert 20 <= before.count(b"\n") < len(requests), "the kill came too late"
        with open(target, "ab") as file:
            file.write(b'{"id": "r119", "choices": [')  # a line cut off while it was written
        expect(sluice(*flags, "--resume"), 0)
        after = target.read_bytes()
        assert after.startswith(before[:before.rindex(b"\n") + 1])
        ids = [line["id"] for line in read_lines(target)]
        assert sorted(ids) == sorted(request["id"] for request in requests), "answers are missing or there twice"
        expect(sluice(*flags, "--resume"), 0)
        assert target.read_bytes() == after, "nothing was left to do"
        undisturbed = Path(name) / "whole.jsonl"
        expect(sluice(*["generate", "-i", source, "-o", undisturbed, *flags[5:]]), 0)
        texts = [{line["id"]: line["choices"][0]["token_ids"] for line in read_lines(path)} for path in (target, undisturbed)]
        assert texts[0] == texts[1]


def test_generate_reads_ids_of_any_kind():
    with tempfile.TemporaryDirectory() as name:
        source, target = Path(name) / "in.jsonl", Path(name) / "out.jsonl"
        write_lines(source, [{"id": 7, "prompt": [5], "max_tokens": 2}, {"prompt": [6], "max_tokens": 2}])
        flags = ("generate", "-i", source, "-o", target, "-m", TINY / "expert")
        expect(sluice(*flags), 0)
        assert sorted(line["id"] for line in read_lines(target)) == ["2", "7"]
        expect(sluice(*flags, "--resume"), 0)
        assert len(read_lines(target)) == 2


def main():
    wanted = sys.argv[1:]
    tests = [(name, test) for name, test in globals().items() if name.startswith("test_") and (not wanted or name in wanted)]
    passed = failed = skipped = 0
    for name, test in tests:
        started = time.monotonic()
        try:
            test()
            passed += 1
        except Skip as reason:
            print(f"{name}: skipped, {reason}")
            skipped += 1
        except Exception as problem:
            where = traceback.extract_tb(problem.__traceback__)
            line = next((frame.lineno for frame in reversed(where) if frame.name == name), 0)
            print(f"{name}, line {line}: {type(problem).__name__}: {str(problem)[:1200]}")
            failed += 1
        if time.monotonic() - started > 20:
            print(f"  {name} took {time.monotonic() - started:.0f} s")
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
