#!/usr/bin/env python3
"""What requests with pictures cost the streams beside them: pictures.py [--url URL] [--streams N] [--pictures N] [--tokens N]
[--rounds N] [--layers N] [--seconds N] [--no-texts] [-- SERVE ARGUMENTS]

N plain streams run; in turn nothing else comes, N requests with a text each come at once, and N with a different picture each
and a short text, all of as many prompt tokens (image tokens included) and of 8 tokens of answer. Printed are p99 and median of
the gaps between tokens of the streams, from when the requests are sent until all of them are answered or --seconds are over,
how many were, and the ratio of the p99 beside pictures to that beside texts and to that alone. --no-texts leaves the texts out.

Without --url it writes a model of SmolVLM-256M's shape with random weights (a decoder of --layers layers, 30 in the original,
of dimension 576; a tower of 12 layers of dimension 768 over one tile of 512 x 512 pixels; the tokenizer of the miniature in
tests/golden/data/vision/idefics3) and serves it with the arguments behind `--`. Python's standard library is all it needs."""
import argparse
import base64
import json
import os
import random
import statistics
import struct
import sys
import tempfile
import threading
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from streams import Client, Sender, quantile

ROOT = Path(__file__).resolve().parent.parent
MINIATURE = ROOT / "tests/golden/data/vision/idefics3"
SIDE, PATCH, MERGE = 512, 16, 4  # pixels of a tile and of a patch, patches of a side that become one embedding
IMAGE_TOKENS = (SIDE // PATCH // MERGE) ** 2


def shapes(layers):
    """Names and dimensions of the tensors."""
    dim, inner, kv, tower, wide = 576, 1536, 192, 768, 3072
    yield "model.connector.modality_projection.proj.weight", [dim, tower * MERGE * MERGE]
    yield "model.text_model.embed_tokens.weight", [320, dim]
    yield "model.text_model.norm.weight", [dim]
    for i in range(layers):
        at = f"model.text_model.layers.{i}."
        for name, shape in {"input_layernorm": [dim], "post_attention_layernorm": [dim], "mlp.gate_proj": [inner, dim], "mlp.up_proj": [inner, dim],
                            "mlp.down_proj": [dim, inner], "self_attn.q_proj": [dim, dim], "self_attn.k_proj": [kv, dim], "self_attn.v_proj": [kv, dim],
                            "self_attn.o_proj": [dim, dim]}.items():
            yield f"{at}{name}.weight", shape
    at = "model.vision_model."
    yield f"{at}embeddings.patch_embedding.weight", [tower, 3, PATCH, PATCH]
    yield f"{at}embeddings.patch_embedding.bias", [tower]
    yield f"{at}embeddings.position_embedding.weight", [(SIDE // PATCH) ** 2, tower]
    for kind in ("weight", "bias"):
        yield f"{at}post_layernorm.{kind}", [tower]
        for i in range(12):
            for name in ("layer_norm1", "layer_norm2"):
                yield f"{at}encoder.layers.{i}.{name}.{kind}", [tower]
            for name, shape in {"mlp.fc1": [wide, tower], "mlp.fc2": [tower, wide], "self_attn.q_proj": [tower, tower], "self_attn.k_proj": [tower, tower],
                                "self_attn.v_proj": [tower, tower], "self_attn.out_proj": [tower, tower]}.items():
                yield f"{at}encoder.layers.{i}.{name}.{kind}", shape if kind == "weight" else shape[:1]


def random_bf16(count):
    """Values from 0.008 to 0.03, of both signs."""
    out = bytearray(2 * count)
    out[0::2] = os.urandom(count)
    out[1::2] = os.urandom(count).translate(bytes(0x3C | (0x80 if byte & 1 else 0) for byte in range(256)))
    return bytes(out)


def embedding_table(dim):
    """Rows of tokens that are no plain ASCII are 0, so that these are never the likeliest: those that are no text, or end inside a
    character, give streams no event, and the gap around them would be that of several steps."""
    tokenizer = json.loads((MINIATURE / "tokenizer.json").read_text())
    special = {token["id"] for token in tokenizer["added_tokens"]}
    is_plain = lambda token: all(" " <= character <= "~" for character in token.replace("\u0120", " "))
    plain = {number for token, number in tokenizer["model"]["vocab"].items() if is_plain(token)} - special
    return b"".join(random_bf16(dim) if row in plain else bytes(2 * dim) for row in range(320))


def write_model(folder, layers):
    for name in ("chat_template.jinja", "tokenizer.json", "tokenizer_config.json"):
        (folder / name).write_bytes((MINIATURE / name).read_bytes())
    config = json.loads((MINIATURE / "config.json").read_text())
    config["scale_factor"] = MERGE
    config["text_config"] |= {"hidden_size": 576, "intermediate_size": 1536, "num_hidden_layers": layers, "num_attention_heads": 9, "num_key_value_heads": 3,
                              "head_dim": 64, "max_position_embeddings": 4096}
    config["vision_config"] |= {"hidden_size": 768, "intermediate_size": 3072, "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": SIDE, "patch_size": PATCH}
    (folder / "config.json").write_text(json.dumps(config))
    processor = json.loads((MINIATURE / "processor_config.json").read_text())
    processor["image_seq_len"] = IMAGE_TOKENS
    processor["image_processor"] |= {"max_image_size": {"longest_edge": SIDE}, "size": {"longest_edge": SIDE}, "do_image_splitting": False}
    (folder / "processor_config.json").write_text(json.dumps(processor))
    header, offset = {}, 0
    tensors = list(shapes(layers))
    count_of = lambda shape: shape[0] if len(shape) == 1 else shape[0] * count_of(shape[1:])
    for name, shape in tensors:
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + 2 * count_of(shape)]}
        offset += 2 * count_of(shape)
    head = json.dumps(header).encode()
    head += b" " * (-len(head) % 8)
    with open(folder / "model.safetensors", "wb") as file:
        file.write(struct.pack("<Q", len(head)) + head)
        for name, shape in tensors:
            is_gain = "norm" in name and name.endswith("weight")
            if name.endswith("embed_tokens.weight"):
                file.write(embedding_table(shape[1]))
            else:
                file.write(b"\x80\x3f" * count_of(shape) if is_gain else random_bf16(count_of(shape)))


def png(seed):
    """Blocks of colour, 64 of a side."""
    draw = random.Random(seed)
    rows = b""
    for _ in range(8):
        line = b"\0" + b"".join(bytes(draw.choices(range(256), k=3)) * 64 for _ in range(8))
        rows += line * 64
    chunk = lambda kind, data: struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
    return (b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", struct.pack(">IIBBBBB", 512, 512, 8, 2, 0, 0, 0)) + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


def body_of(content, tokens):
    return {"messages": [{"role": "user", "content": content}], "max_tokens": tokens, "temperature": 0, "ignore_eos": True}


def with_text(number):
    return body_of(f"{number} " + "a b c d " * (IMAGE_TOKENS // 8), 8)


def with_picture(number):
    url = "data:image/png;base64," + base64.b64encode(png(number)).decode()
    return body_of([{"type": "image_url", "image_url": {"url": url}}, {"type": "text", "text": f"What is it? {number}"}], 8)


def measure(client, arguments, bodies):
    """Gaps of the streams while the bodies are answered, at most for so long; what that took, and their prompt tokens."""
    begin, stop = threading.Event(), threading.Event()
    sender = Sender(client.url, bodies) if bodies else None
    with ThreadPoolExecutor(arguments.streams) as streams:
        running = [streams.submit(client.gaps, body_of(f"Tell me of {i}.", arguments.tokens), begin, stop) for i in range(arguments.streams)]
        time.sleep(2)
        begin.set()
        start = time.monotonic()
        told = []
        if sender:
            told = sender.send(arguments.seconds)
        else:
            time.sleep(arguments.seconds)
        took = time.monotonic() - start
        stop.set()
        if sender:
            sender.close()
        gaps = [gap for one in running for gap in one.result()]
    wrong = [one for one in told if one[1] != 200]
    if wrong:
        raise SystemExit(f"a request was answered with {wrong[0][1]}: {wrong[0][2]}")
    return gaps, took, [one[3] for one in told]


def started(arguments, folder):
    sys.path.append(str(ROOT / "tests/python"))
    import serving
    write_model(Path(folder), arguments.layers)
    return serving.Server("--model", folder, "--max-seqs", str(arguments.streams + arguments.pictures), "--kv-tokens", "131072", *arguments.serve)


def run(client, arguments):
    to = {"texts": [], "alone": []}
    for number in range(arguments.rounds):
        first = number * arguments.pictures
        bodies = {"alone": [], "texts": [with_text(first + i) for i in range(arguments.pictures)], "pictures": [with_picture(first + i) for i in range(arguments.pictures)]}
        if arguments.no_texts:
            del bodies["texts"]
        rows = {}
        for name, asked in bodies.items():
            gaps, took, prompts = rows[name] = measure(client, arguments, asked)
            print(f"beside {name:8}: p99 {1e3 * quantile(gaps, 0.99):.1f} ms, median {1e3 * quantile(gaps, 0.5):.1f} ms, longest {1e3 * max(gaps):.0f} ms, "
                  f"{took:.1f} s, {len(prompts)} answered, of {statistics.mean(prompts) if prompts else 0:.0f} prompt tokens", flush=True)
        p99 = {name: quantile(gaps, 0.99) for name, (gaps, _, _) in rows.items()}
        for name, ratios in to.items():
            if name in p99:
                ratios.append(p99["pictures"] / p99[name])
    for name, ratios in to.items():
        if ratios:
            print(f"p99 beside pictures, median of {arguments.rounds}: {100 * (statistics.median(ratios) - 1):+.1f} % of that {name}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--url")
    parser.add_argument("--streams", type=int, default=64)
    parser.add_argument("--pictures", type=int, default=64)
    parser.add_argument("--tokens", type=int, default=2000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--layers", type=int, default=30)
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--no-texts", action="store_true")
    parser.add_argument("serve", nargs="*")
    arguments = parser.parse_args()
    if arguments.url:
        return run(Client(arguments.url), arguments)
    with tempfile.TemporaryDirectory() as folder:
        server = started(arguments, folder)
        try:
            run(Client(server.url), arguments)
        finally:
            server.process.terminate()
            server.process.wait()


if __name__ == "__main__":
    main()
