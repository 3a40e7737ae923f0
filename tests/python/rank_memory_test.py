#!/usr/bin/env python3
"""How much memory a rank takes of a model that is large beside the program: its share, by each cut. Skips where mpirun or the
plugin is missing."""
import json
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import ranks_test
import serving
from serving import BINARY

# 432 million weights in BF16, of which the experts are 403 million.
DIM, LAYERS, HEADS, KV_HEADS, EXPERTS, INNER, VOCAB = 1024, 8, 16, 8, 8, 2048, 2048
# The same family with next to no weights: what the program takes by itself.
SMALL = Path(__file__).resolve().parent.parent / "golden/data/mixtral"
SMALL_VOCAB = json.loads((SMALL / "config.json").read_text())["vocab_size"]


def shapes():
    head = DIM // HEADS
    yield "model.embed_tokens.weight", (VOCAB, DIM)
    yield "lm_head.weight", (VOCAB, DIM)
    yield "model.norm.weight", (DIM,)
    for layer in range(LAYERS):
        prefix = f"model.layers.{layer}."
        yield prefix + "input_layernorm.weight", (DIM,)
        yield prefix + "post_attention_layernorm.weight", (DIM,)
        for name, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            yield prefix + f"self_attn.{name}_proj.weight", (heads * head, DIM)
        yield prefix + "self_attn.o_proj.weight", (DIM, HEADS * head)
        yield prefix + "block_sparse_moe.gate.weight", (EXPERTS, DIM)
        for expert in range(EXPERTS):
            for name, shape in (("w1", (INNER, DIM)), ("w2", (DIM, INNER)), ("w3", (INNER, DIM))):
                yield prefix + f"block_sparse_moe.experts.{expert}.{name}.weight", shape


def write_model(folder):
    """Bytes of its weights, and of those in experts."""
    config = {"architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": DIM, "intermediate_size": INNER,
              "num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "num_local_experts": EXPERTS,
              "num_experts_per_tok": 2, "vocab_size": VOCAB, "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 1e6,
              "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))
    header, end, experts = {}, 0, 0
    for name, shape in shapes():
        size = 2 * shape[0] * (shape[1] if len(shape) > 1 else 1)
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + size]}
        end += size
        experts += size if ".experts." in name else 0
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    rng = random.Random(1)
    words = b"".join(struct.pack("<H", rng.choice((0x3C00, 0xBC00, 0x3B80, 0xBB80))) for _ in range(1 << 19))  # of about 0.008
    with (folder / "model.safetensors").open("wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for begin in range(0, end, len(words)):
            file.write(words[:end - begin])
    return end, experts


def resident(pid):
    """Bytes that the process has in memory, of pages that others have too its part: pages of the file beside a rank's own come with
    those, where they are in memory for another rank anyway."""
    try:
        for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    except OSError:
        pass
    return 0


def measure(model, vocab, count, *cut):
    """Bytes of each process once it answers: the median of the last third of its time. mpirun's helpers are gone soon."""
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder) / "in.jsonl", Path(folder) / "out.jsonl"
        # Prompts of many tokens, which between them choose every expert of every layer: of mapped files what is read counts.
        rng = random.Random(2)
        prompts = [[rng.randrange(3, vocab) for _ in range(64)] for _ in range(4)]
        lines = [{"id": f"r{i}", "prompt": prompt, "max_tokens": 60, "temperature": 0, "ignore_eos": True}
                 for i, prompt in enumerate(prompts)]
        source.write_text("".join(json.dumps(line) + "\n" for line in lines))
        command = [BINARY, "generate", "-i", source, "-o", out, "-m", model, "-t", 1, "--kv-tokens", 1024, "--max-step-tokens", 64, *cut]
        if count > 1:
            command = [*ranks_test.MPIRUN, "-n", count, *command, *ranks_test.PATIENT]
        process = subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL)
        seen = {}
        while process.poll() is None:
            pids = [process.pid]
            if count > 1:
                pids = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
            for pid in pids:
                if size := resident(pid):  # none of a process that ends
                    seen.setdefault(pid, []).append(size)
            time.sleep(0.02)
        assert process.returncode == 0, process.stderr.read().decode()[-2000:]
        assert len(out.read_text().splitlines()) == len(lines)
        return [sorted(sizes[-(len(sizes) // 3):])[len(sizes) // 6] for sizes in seen.values()
                if count == 1 or len(sizes) > 3]


def test_a_rank_has_its_share():
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        weights, experts = write_model(folder)
        whole, = measure(folder, VOCAB, 1)
        program, = measure(SMALL, SMALL_VOCAB, 1)
        assert 0.9 * weights < whole - program < 1.1 * weights, (whole, program, weights)
        for count, share, *cut in ((2, weights / 2, "--tp", 2), (2, weights / 2, "--pp", 2), (2, weights - experts / 2, "--ep", 2),
                                   (4, weights / 4, "--tp", 2, "--pp", 2)):
            program = sorted(measure(SMALL, SMALL_VOCAB, count, *cut))[count // 2]  # with MPI's libraries
            sizes = measure(folder, VOCAB, count, *cut)
            print(" ".join(map(str, cut)), [f"{(size - program) / share:.3f}" for size in sizes], "of the share, beside",
                  f"{program / 1e6:.0f} MB", flush=True)
            assert len(sizes) == count, sizes
            for size in sizes:
                assert 0.9 * share < size - program < 1.1 * share, (cut, sizes, program, share)


def main():
    if shutil.which("mpirun") is None or not ranks_test.PLUGIN.exists():
        print("mpirun or the plugin is not there (Debian packages libopenmpi-dev and openmpi-bin)\n0 passed, 0 failed, 1 skipped")
        return 0
    return serving.run_tests(serving.tests_of(sys.modules[__name__]))


if __name__ == "__main__":
    sys.exit(main())
