#!/usr/bin/env python3
"""Answers are the same bytes with and without speculation, on the default model: greedy and seeded, with and without a schema,
one request at a time and sixteen at once, whoever guesses. Miniatures of GLM and DeepSeek get a head for multi-token
prediction, which passes its token on to a copy of their last layer. So does a GGUF file of a Llama, which also gets a folder
with a head of EAGLE-3.

SLUICE_BINARY names the program, SLUICE_MODELS the folder of the default model. SLUICE_SPECULATION_PROMPTS (default 8) is the
number of prompts; 100 is the full run.
"""
import json
import os
import random
import shutil
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

MODEL = Path(os.environ.get("SLUICE_MODELS", ".models")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
GOLDEN = Path(__file__).parent.parent / "golden/data"
BINARY = os.environ.get("SLUICE_BINARY", "build/release/sluice")
COUNT = int(os.environ.get("SLUICE_SPECULATION_PROMPTS", "8"))
PROPOSERS = ["ngram", "suffix", "lookahead", "auto"]
BATCHES = [1, 16]

TOPICS = ["bread", "the tides", "bicycles", "maps", "bees", "glass", "letters", "winter", "bridges", "salt"]
KINDS = [
    "Question: What should everybody know about {0}?\nAnswer:",
    "List of five facts about {0}:\n1. Facts about {0} are easy to find.\n2.",
    "Text: People like {0}. People who like {0} talk about {0} every day.\nThe same text again: People like",
    "# Python\ndef count_{1}(items):\n    return sum(1 for item in items if item == '{0}')\n\ndef count_",
    "A short story about {0}.\nOnce upon a time",
    "Describe {0} as JSON.\n",
    "Dear editor, I write to you about {0}, because",
    "Summary of 'All about {0}': the book is about {0}. The first chapter is about",
    "def test_{1}():\n    assert {1}(1) == 1\n    assert {1}(2) == 2\n    assert",
    "User: Tell me a joke about {0}.\nAssistant:",
]
SCHEMA = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20},
                                           "kind": {"enum": ["thing", "place", "habit"]},
                                           "years": {"type": "array", "items": {"type": "integer"}, "maxItems": 4}},
          "required": ["name", "kind", "years"]}


def make_requests():
    requests = []
    for index in range(COUNT):
        topic = TOPICS[index // len(KINDS) % len(TOPICS)]
        prompt = KINDS[index % len(KINDS)].format(topic, topic.replace("the ", ""))
        request = {"id": str(index), "prompt": prompt, "max_tokens": 64, "temperature": 0, "ignore_eos": index % 3 == 0}
        if index % 2 == 1:
            request |= {"temperature": 0.8, "top_p": 0.95, "seed": index}
        if index % 10 in (5, 8):
            request |= {"guided_json": SCHEMA, "ignore_eos": False}
        requests.append(request)
    return requests


def add_head(source, folder):
    """A copy of a miniature of two layers, with a head in the place of a third."""
    folder.mkdir()
    shutil.copy(source / "config.json", folder)
    data = (source / "model.safetensors").read_bytes()
    size, = struct.unpack("<Q", data[:8])
    tensors = {name: (entry["dtype"], entry["shape"], data[8 + size:][slice(*entry["data_offsets"])])
               for name, entry in json.loads(data[8:8 + size]).items() if name != "__metadata__"}
    width = tensors["model.norm.weight"][1][0]
    one = b"\x80\x3f"  # as BF16
    passed = b"".join(one if column == row else b"\0\0" for row in range(width) for column in range(2 * width))
    head = {name.replace("layers.1.", "layers.2."): tensor for name, tensor in tensors.items() if "layers.1." in name}
    head |= {"model.layers.2.eh_proj.weight": ("BF16", [width, 2 * width], passed),
             "model.layers.2.enorm.weight": ("BF16", [width], one * width),
             "model.layers.2.hnorm.weight": ("BF16", [width], one * width),
             "model.layers.2.shared_head.norm.weight": tensors["model.norm.weight"]}
    write_safetensors(folder, tensors | head)
    return folder


def write_safetensors(folder, tensors):
    """Of (type, shape, bytes) by name."""
    header, parts, begin = {}, [], 0
    for name, (dtype, shape, content) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, begin + len(content)]}
        parts.append(content)
        begin += len(content)
    text = json.dumps(header).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(text)) + text + b"".join(parts))


def write_gguf(path, pairs, tensors):
    """Of numbers and text by key, and of (shape, floats) by name."""
    def text(value):
        return struct.pack("<Q", len(value)) + value.encode()

    def pair(value):
        if isinstance(value, str):
            return struct.pack("<I", 8) + text(value)
        return struct.pack("<If", 6, value) if isinstance(value, float) else struct.pack("<II", 4, value)

    data, descriptions = b"", b""
    for name, (shape, values) in tensors.items():
        data += bytes(-len(data) % 32)
        descriptions += text(name) + struct.pack(f"<I{len(shape)}QIQ", len(shape), *reversed(shape), 0, len(data))
        data += struct.pack(f"<{len(values)}f", *values)
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(pairs))
    head += b"".join(text(key) + pair(value) for key, value in pairs.items()) + descriptions
    path.write_bytes(head + bytes(-len(head) % 32) + data)


class Miniature:
    """A Llama of two layers that say little beside its embeddings, with heads that pass their token on."""
    WIDTH, KV, INNER, VOCAB, LAYERS = 32, 16, 48, 96, 2

    def __init__(self, folder):
        self.numbers = random.Random(5)
        self.path, self.eagle = folder / "nextn.gguf", folder / "eagle"
        self.output = self.matrix(self.VOCAB, self.WIDTH, 1)
        self.write_model()
        self.write_eagle()

    def matrix(self, rows, columns, scale):
        return [rows, columns], [self.numbers.gauss(0, scale) for _ in range(rows * columns)]

    def passing(self, inputs):
        """Makes the first of so many inputs its output."""
        size = self.WIDTH
        return [size, inputs * size], [float(row == column) for row in range(size) for column in range(inputs * size)]

    def ones(self):
        return [self.WIDTH], [1.0] * self.WIDTH

    def layer(self, inputs=1):
        width, wide = self.WIDTH, inputs * self.WIDTH
        return {"attn_norm": self.ones(), "ffn_norm": self.ones(), "attn_q": self.matrix(width, wide, 0.1),
                "attn_k": self.matrix(self.KV, wide, 0.1), "attn_v": self.matrix(self.KV, wide, 0.1),
                "attn_output": self.matrix(width, width, 0.05), "ffn_gate": self.matrix(self.INNER, width, 0.1),
                "ffn_up": self.matrix(self.INNER, width, 0.1), "ffn_down": self.matrix(width, self.INNER, 0.05)}

    def write_model(self):
        tensors = {"token_embd.weight": self.matrix(self.VOCAB, self.WIDTH, 1), "output_norm.weight": self.ones(),
                   "output.weight": self.output}
        for layer in range(self.LAYERS + 1):
            tensors |= {f"blk.{layer}.{name}.weight": tensor for name, tensor in self.layer().items()}
        tensors |= {f"blk.{self.LAYERS}.nextn.{name}.weight": self.ones() for name in ("enorm", "hnorm", "shared_head_norm")}
        tensors[f"blk.{self.LAYERS}.nextn.eh_proj.weight"] = self.passing(2)
        write_gguf(self.path, {
            "general.architecture": "llama", "llama.block_count": self.LAYERS + 1, "llama.nextn_predict_layers": 1,
            "llama.context_length": 256, "llama.embedding_length": self.WIDTH, "llama.feed_forward_length": self.INNER,
            "llama.attention.head_count": 4, "llama.attention.head_count_kv": 2, "llama.vocab_size": self.VOCAB,
            "llama.attention.layer_norm_rms_epsilon": 1e-5, "llama.rope.freq_base": 10000.0}, tensors)

    def write_eagle(self):
        """Its layer adds little to what is passed on of the model's last layer."""
        names = {"attn_norm": "input_layernorm", "ffn_norm": "post_attention_layernorm", "attn_q": "self_attn.q_proj",
                 "attn_k": "self_attn.k_proj", "attn_v": "self_attn.v_proj", "attn_output": "self_attn.o_proj",
                 "ffn_gate": "mlp.gate_proj", "ffn_up": "mlp.up_proj", "ffn_down": "mlp.down_proj"}
        tensors = {f"midlayer.{names[name]}.weight": tensor for name, tensor in self.layer(2).items()}
        tensors |= {"midlayer.hidden_norm.weight": self.ones(), "norm.weight": self.ones(), "fc.weight": self.passing(3),
                    "lm_head.weight": self.output}
        self.eagle.mkdir()
        write_safetensors(self.eagle, {name: ("F32", shape, struct.pack(f"<{len(values)}f", *values))
                                       for name, (shape, values) in tensors.items()})
        (self.eagle / "config.json").write_text(json.dumps({
            "architectures": ["LlamaForCausalLMEagle3"], "hidden_size": self.WIDTH, "intermediate_size": self.INNER,
            "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 1, "max_position_embeddings": 256,
            "rms_norm_eps": 1e-5, "rope_theta": 10000.0, "tie_word_embeddings": False, "vocab_size": self.VOCAB,
            "draft_vocab_size": self.VOCAB, "eagle_config": {"eagle_aux_hidden_state_layer_ids": [1, 0, 1]}}))


def check_heads(folder):
    """How many miniatures give the same answers with their head, and how many do not."""
    passed = failed = 0
    requests = [{"id": str(i), "prompt": [3 + (7 * i + j * j) % 60 for j in range(4 + i)], "max_tokens": 40,
                 "ignore_eos": True, "temperature": i % 2, "seed": i} for i in range(8)]
    miniature = Miniature(folder)
    cases = [("mtp", add_head(GOLDEN / family, folder / family)) for family in ["glm4_moe", "deepseek"]]
    cases += [("mtp", miniature.path), (f"eagle3:{miniature.eagle}", miniature.path)]
    for head, model in cases:
        expected, *_ = run(folder, requests, "off", 1, model)
        for batch in BATCHES:
            answers, drafted, accepted = run(folder, requests, head, batch, model, ["--speculate-tokens", "3"])
            good = answers == expected and drafted > 0
            passed, failed = passed + good, failed + (not good)
            print(f"{head.split(':')[0]} of {model.name}, {batch} at once: {'the same' if answers == expected else 'other'} "
                  f"answers, {accepted} of {drafted} drafts accepted", flush=True)
    return passed, failed


def run(folder, requests, proposer, batch, model=MODEL, flags=()):
    """Answers by id, drafts, and how many of them were accepted."""
    source, target, metrics = folder / "in.jsonl", folder / "out.jsonl", folder / "metrics.json"
    source.write_text("".join(json.dumps(request) + "\n" for request in requests))
    subprocess.run([BINARY, "generate", "--input", source, "--output", target, "-m", model, "--force", "--metrics", metrics,
                    "--max-seqs", str(batch), "--speculate", proposer, *flags],
                   check=True, stdin=subprocess.DEVNULL, stderr=subprocess.PIPE)
    answers = {}
    for line in target.read_text().splitlines():
        answer = json.loads(line)
        assert "error" not in answer, answer
        answers[answer["id"]] = [(c["token_ids"], c["text"], c["finish_reason"]) for c in answer["choices"]]
    counts = json.loads(metrics.read_text())
    return answers, counts["drafted_tokens"], counts["accepted_drafts"]


def check_default_model(folder):
    passed = failed = 0
    requests = make_requests()
    expected, *_ = run(folder, requests, "off", 1)
    assert len(expected) == COUNT
    for batch in BATCHES:
        for proposer in PROPOSERS:
            answers, drafted, accepted = run(folder, requests, proposer, batch)
            different = [key for key in expected if answers.get(key) != expected[key]]
            good = not different and (drafted > 0 or batch > 1)  # in a batch drafts may not pay
            passed, failed = passed + good, failed + (not good)
            print(f"{proposer}, {batch} at once: {COUNT - len(different)} of {COUNT} answers are the same, {accepted} of {drafted} "
                  f"drafts accepted", flush=True)
            if different:
                print(f"  {different[0]}:\n  {expected[different[0]]}\n  {answers.get(different[0])}")
    return passed, failed


def main():
    with tempfile.TemporaryDirectory() as name:
        folder, skipped = Path(name), 0
        passed, failed = check_heads(folder)
        if MODEL.exists():
            more = check_default_model(folder)
            passed, failed = passed + more[0], failed + more[1]
        else:
            print(f"the default model is not at {MODEL}: skipped")
            skipped = len(PROPOSERS) * len(BATCHES)
    print(f"{passed} passed, {failed} failed, {skipped} skipped")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
