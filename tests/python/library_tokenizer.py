"""The default model's tokenizer, built anew with the `tokenizers` package from the vocabulary in the GGUF file."""
import json
import struct

SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
STRING, ARRAY, CONTROL = 8, 9, 3


def read_metadata(path):
    """The keys and values at the head of a GGUF file, version 2 or 3."""
    with open(path, "rb") as file:
        def scalar(code):
            return struct.unpack("<" + code, file.read(struct.calcsize("<" + code)))[0]

        def value(kind):
            if kind == STRING:
                return file.read(scalar("Q")).decode()
            if kind == ARRAY:
                inner, count = scalar("I"), scalar("Q")
                return [value(inner) for _ in range(count)]
            return scalar(SCALARS[kind])

        magic, version, _, count = struct.unpack("<4sIQQ", file.read(24))
        assert magic == b"GGUF" and version in (2, 3), f"{path} is no GGUF file"
        return {value(STRING): value(scalar("I")) for _ in range(count)}


def smollm(path):
    """Byte-level BPE with every digit by itself, as the makers' tokenizer.json has it."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
    metadata = read_metadata(path)
    assert metadata["tokenizer.ggml.pre"] == "smollm", metadata["tokenizer.ggml.pre"]
    tokens, kinds = metadata["tokenizer.ggml.tokens"], metadata["tokenizer.ggml.token_type"]
    merges = [tuple(merge.split(" ")) for merge in metadata["tokenizer.ggml.merges"]]
    tokenizer = Tokenizer(models.BPE(vocab={token: i for i, token in enumerate(tokens)}, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                                       pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, normalized=False, special=True)
                                  for token, kind in zip(tokens, kinds) if kind == CONTROL])
    return tokenizer


def save(tokenizer, path):
    path.write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False))
