#!/usr/bin/env python3
"""Builds tokenizers with the `tokenizers` package, one per kind of part, and writes what it makes of many texts.

usage: tools/make_tokenizer_cases.py OUT [--only NAME,NAME] [--random N]

OUT/NAME/tokenizer.json is the tokenizer, OUT/NAME/cases.json a list of {text, ids, special, plain, decoded}:
ids without and with the tokens around a text, ids with special tokens read as plain text, and the text of `ids`.
tests/tokenizer/tokenizer_cases_test.cpp reads such folders: the ones in tests/tokenizer/data, and $SLUICE_TOKENIZER_CASES.
"""
import argparse
import json
import pathlib
import random
import sys
import tempfile

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

PROSE = [
    "The quick brown fox jumps over the lazy dog. It's 3.14159, isn't it? We'll see what they've done; I'd say I'm sure.",
    "Der schnelle braune Fuchs springt über den faulen Hund; Straße, Größe, Übung, ÄÖÜ äöü ß.",
    "Le cœur déçu mais l'âme plutôt naïve, Louÿs rêva de crapaüter en canoë au delà des îles.",
    "El pingüino Wenceslao hizo kilómetros bajo exhaustiva lluvia y frío, ¿añoraba a su querido cachorro?",
    "Съешь же ещё этих мягких французских булок, да выпей чаю. ЁЛКА и объезд.",
    "Ξεσκεπάζω την ψυχοφθόρα βδελυγμία. Ο ΟΔΥΣΣΕΥΣ γύρισε στην Ιθάκη.",
    "天地玄黃，宇宙洪荒。日月盈昃，辰宿列張。我能吞下玻璃而不伤身体。",
    "いろはにほへと ちりぬるを。カタカナとひらがな、漢字も混ぜる。ﾊﾝｶｸ ｶﾀｶﾅ",
    "키스의 고유조건은 입술끼리 만나야 하고 특별한 기술은 필요치 않다. 한글 자모",
    "نص حكيم له سر قاطع وذو شأن عظيم مكتوب على ثوب أخضر. ١٢٣٤٥",
    "ऋषियों को सताने वाले दुष्ट राक्षसों के राजा रावण का सर्वनाश। १२३",
    "เป็นมนุษย์สุดประเสริฐเลิศคุณค่า กว่าบรรดาฝูงสัตว์เดรัจฉาน",
    "דג סקרן שט בים מאוכזב ולפתע מצא חברה. שָׁלוֹם",
    "Em đến thăm nhà tôi vào buổi chiều, trời mưa rất to và gió thổi mạnh.",
    "def fib(n):\n    if n < 2:\n        return n\n    return fib(n - 1) + fib(n - 2)\n\n\nprint([fib(i) for i in range(10)])\n",
    "#include <vector>\ntemplate <class T> int f(std::vector<T>& v) { return v.size() > 0 ? 1 : 0; } // end\n",
    "SELECT a.id, b.name FROM a JOIN b ON a.id=b.id WHERE a.x >= 100 AND b.y <> 'foo' ORDER BY 1 DESC;",
    '{"key": [1, 2.5e-10, null, true], "nested": {"a": "b\\n"}}',
    "👍🏽 family: 👨‍👩‍👧‍👦 flag: 🇩🇪🇫🇷 heart: ❤️ keycap: 1️⃣ ☺ 🤖🚀✨",
]
EDGES = [
    "", " ", "  ", "   ", "\t", "\n", "\r\n", "\n\n\n", " \n \n", "a", " a", "a ", "  a  b   c    d     ", "\ta\t\tb",
    "Hello world", " Hello world", "hello WORLD Hello", "HELLO", "don't DON'T can't we'Re I'LL 'Tis 's 'S", "'", "''", "'ſ",
    "1", "12", "123", "1234", "12345678901234567890", "3.14", "1,234,567.89", "²³¹¼½¾ Ⅷ ① ١٢٣", "x²y³", "a1b22c333d4444",
    "!!!", "!?.,;:", "(a) [b] {c} <d>", "a/b\\c", "http://www.example.org/path?x=1&y=2#frag", "user@example.org", "-- ---",
    "...\n\n...", "foo.\n\n\nbar", "end.  \n  next", "tab\tand\u00a0nbsp\u3000ideographic\u2003em", "\u200bzero\u200dwidth\ufeff",
    "e\u0301 \u00e9 \u1ec7 e\u0323\u0302 a\u0302\u0323", "ﬁ ﬂ ﬀ ™ ℡ Ω Å K ㎏ ½ ﷺ", "İI ıi Σσς", "\u1100\u1161\u11a8 각 가\u11a8",
    "\u0000a\u0001b\u007fc\u0085d", "\ue000\uf8ff", "\U0001F469\u200D\U0001F680", "ｆｕｌｌ ｗｉｄｔｈ １２３", "…—–‘’“”«»", "$100 €5 £3 ¥7 +-=<>^~|`",
    "_under_score_ camelCase PascalCase SCREAMING_CASE kebab-case XMLHttpRequest iPhone", "<s>", "</s>", "<s>hi</s> there<s> ",
    "[CLS] a [SEP] b [MASK] c", "  <mask>  x", "a<mask>b", "foo bar foobar barfoo foo, bar", "yesterday Yesterday YESTERDAY today",
    "<|special|>", "a <|special|> b", "<|special|><|special|>", "<|tool|>x<|tool|>", "##ing ing##", "▁ ▁▁ a▁b", "<0x0A> <0x41>",
    "a" * 120, " " * 60 + "x", "ab" * 40, "aA" * 30 + "A" * 30, "\n" * 20 + "x", "é" * 50, "漢" * 40, "🙂" * 10, "x" + "!" * 50,
]

GPT4 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = GPT4.replace(r"\p{N}{1,3}", r"\p{N}")
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
O200K = (rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}*{LOWER}+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         rf"[^\r\n\p{{L}}\p{{N}}]?{UPPER}+{LOWER}*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|"
         r"\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+")
DEEPSEEK3 = (r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"""
             r"\s*[\r\n]+|\s+(?!\S)|\s+")


def train(tokenizer, trainer):
    tokenizer.train_from_iterator(PROSE + EDGES[16:40], trainer)
    return tokenizer


def bpe(pre, normalizer=None, size=500, **options):
    """Byte-level BPE."""
    tokenizer = Tokenizer(models.BPE(**options))
    tokenizer.pre_tokenizer = pre
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoders.ByteLevel()
    train(tokenizer, trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=["<s>", "</s>"],
                                         initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    return tokenizer


def char_bpe(pre, decoder=None, normalizer=None, size=500, trainer=None, **options):
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", **options))
    tokenizer.pre_tokenizer = pre
    if normalizer:
        tokenizer.normalizer = normalizer
    if decoder:
        tokenizer.decoder = decoder
    train(tokenizer, trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=["<unk>", "<s>", "</s>"],
                                         limit_alphabet=150, **(trainer or {})))
    return tokenizer


def sentence_bpe(prefix=True, **options):
    """As Llama 2: the whole text is one word, characters fall back to bytes."""
    size = 700
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=True, fuse_unk=True, **options))
    steps = [normalizers.Prepend("▁")] if prefix else []
    tokenizer.normalizer = normalizers.Sequence(steps + [normalizers.Replace(" ", "▁")])
    tokenizer.pre_tokenizer = pre_tokenizers.Split("▁", "merged_with_next")
    special = ["<unk>", "<s>", "</s>"] + [f"<0x{i:02X}>" for i in range(256)]
    train(tokenizer, trainers.BpeTrainer(vocab_size=size, show_progress=False, special_tokens=special, limit_alphabet=120))
    state = json.loads(tokenizer.to_str())
    state["pre_tokenizer"] = None
    state["added_tokens"] = state["added_tokens"][:3]
    tokenizer = Tokenizer.from_str(json.dumps(state))
    steps = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()] + ([decoders.Strip(" ", 1, 0)] if prefix else [])
    tokenizer.decoder = decoders.Sequence(steps)
    tokenizer.post_processor = processors.TemplateProcessing(single="<s> $A", pair="<s> $A <s> $B", special_tokens=[("<s>", 1)])
    return tokenizer


def unigram(pre, normalizer=None, decoder=None, size=900):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre
    if normalizer:
        tokenizer.normalizer = normalizer
    tokenizer.decoder = decoder or decoders.Metaspace()
    train(tokenizer, trainers.UnigramTrainer(vocab_size=size, show_progress=False, unk_token="<unk>",
                                             special_tokens=["<unk>", "<s>", "</s>"]))
    return tokenizer


def unigram_bytes():
    base = json.loads(unigram(pre_tokenizers.Metaspace()).to_str())
    vocabulary = base["model"]["vocab"] + [[f"<0x{i:02X}>", -20.0] for i in range(256)]
    tokenizer = Tokenizer(models.Unigram([tuple(entry) for entry in vocabulary], 0, True))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(),
                                           decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def sentence_piece(**options):
    """A Unigram model with the character map of SentencePiece, as transformers converts them."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2 as proto
    with tempfile.TemporaryDirectory() as folder:
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(PROSE + EDGES[16:40]), vocab_size=900, hard_vocab_limit=False,
                                                 model_prefix=folder + "/m", minloglevel=2, **options)
        model = proto.ModelProto()
        model.ParseFromString(pathlib.Path(folder, "m.model").read_bytes())
    tokenizer = Tokenizer(models.Unigram([(p.piece, p.score) for p in model.pieces], model.trainer_spec.unk_id, False))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap),
                                                 normalizers.Replace(Regex(" {2,}"), " ")])
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.add_special_tokens(["<unk>", "<s>", "</s>"])
    return tokenizer


def word_piece(normalizer=None, pre=None, cleanup=True, size=500, **options):
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", **options))
    tokenizer.normalizer = normalizer or normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre or pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=cleanup)
    train(tokenizer, trainers.WordPieceTrainer(vocab_size=size, show_progress=False, limit_alphabet=150,
                                               special_tokens=["[UNK]", "[CLS]", "[SEP]", "[MASK]"]))
    cls, sep = tokenizer.token_to_id("[CLS]"), tokenizer.token_to_id("[SEP]")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", cls), ("[SEP]", sep)])
    return tokenizer


def word_level():
    tokenizer = Tokenizer(models.WordLevel(unk_token="<unk>"))
    tokenizer.normalizer = normalizers.Sequence([normalizers.Strip(), normalizers.Lowercase()])
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    train(tokenizer, trainers.WordLevelTrainer(vocab_size=200, show_progress=False, special_tokens=["<unk>", "<s>"]))
    return tokenizer


def with_added(tokenizer):
    tokenizer.add_special_tokens([AddedToken("<|special|>", special=True), AddedToken("<mask>", lstrip=True, special=True),
                                  AddedToken("<|tool|>", rstrip=True, special=True)])
    tokenizer.add_tokens([AddedToken("foo", single_word=True), AddedToken("yesterday", normalized=True),
                          AddedToken("Yesterday", normalized=False), AddedToken("  ", normalized=False)])
    return tokenizer


def with_roberta(tokenizer):
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("<s>", 0))
    return tokenizer


def with_chain(tokenizer):
    tokenizer.post_processor = processors.Sequence([
        processors.ByteLevel(), processors.TemplateProcessing(single="<s> $A </s>", pair=None, special_tokens=[("<s>", 0), ("</s>", 1)])])
    return tokenizer


def builders():
    level, plain = pre_tokenizers.ByteLevel, lambda: pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    split, chain = pre_tokenizers.Split, pre_tokenizers.Sequence
    space = pre_tokenizers.WhitespaceSplit
    table = {
        "byte_gpt2": lambda: with_added(bpe(level(add_prefix_space=False))),
        "byte_prefix": lambda: with_roberta(bpe(level(add_prefix_space=True))),
        "byte_no_regex": lambda: bpe(plain()),
        "byte_digits": lambda: bpe(chain([pre_tokenizers.Digits(individual_digits=True), level(add_prefix_space=False)])),
        "byte_llama3": lambda: with_chain(bpe(chain([split(Regex(GPT4), "isolated"), plain()]), ignore_merges=True)),
        "byte_qwen2": lambda: bpe(chain([split(Regex(QWEN2), "isolated"), plain()]), normalizer=normalizers.NFC()),
        "byte_o200k": lambda: bpe(chain([split(Regex(O200K), "isolated"), plain()])),
        "byte_deepseek3": lambda: bpe(chain([split(Regex(r"\p{N}{1,3}"), "isolated"), split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
                                             split(Regex(DEEPSEEK3), "isolated"), plain()])),
        "byte_falcon": lambda: bpe(chain([pre_tokenizers.Punctuation("contiguous"), level(add_prefix_space=False),
                                          pre_tokenizers.Digits(False), split(Regex("[0-9][0-9][0-9]"), "isolated")])),
        "byte_right_digits": lambda: bpe(chain([split(Regex(r"\d{1,3}(?=(?:\d{3})*\b)"), "isolated"), level(add_prefix_space=False)])),
        "byte_lookahead_digits": lambda: bpe(chain([split(Regex(r"\p{N}+"), "isolated"), split(Regex(r"(?=(\d{3})+(?!\d))"), "isolated"),
                                                    plain()])),
        "byte_pcre": lambda: bpe(chain([split(Regex(r"(?<=[a-z])(?=[A-Z])|\b\w+?\b|\W"), "isolated"), plain()])),
        "byte_normalizer": lambda: with_added(bpe(split(Regex(r"Ġ?\w+|\W"), "isolated"), normalizer=normalizers.ByteLevel())),
        "byte_nfkc_lower": lambda: with_added(bpe(level(add_prefix_space=False),
                                                  normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.Lowercase()]))),
        "char_suffix": lambda: char_bpe(space(), decoders.BPEDecoder(), size=600, trainer={"end_of_word_suffix": "</w>"},
                                        end_of_word_suffix="</w>"),
        "char_prefix": lambda: char_bpe(pre_tokenizers.Whitespace(), decoders.WordPiece(), trainer={"continuing_subword_prefix": "##"},
                                        continuing_subword_prefix="##"),
        "char_fuse": lambda: char_bpe(pre_tokenizers.Whitespace(), fuse_unk=True),
        "char_no_fuse": lambda: char_bpe(space()),
        "sentence_bpe": sentence_bpe,
        "sentence_bpe_no_prefix": lambda: with_added(sentence_bpe(prefix=False)),
        "unigram": lambda: with_added(unigram(pre_tokenizers.Metaspace())),
        "unigram_first": lambda: with_added(unigram(pre_tokenizers.Metaspace(prepend_scheme="first"),
                                                    decoder=decoders.Metaspace(prepend_scheme="first"))),
        "unigram_never": lambda: unigram(pre_tokenizers.Metaspace(prepend_scheme="never", split=False),
                                         decoder=decoders.Metaspace(prepend_scheme="never")),
        "unigram_nmt": lambda: unigram(chain([space(), pre_tokenizers.Metaspace()]),
                                       normalizers.Sequence([normalizers.Nmt(), normalizers.NFKC(), normalizers.Replace(Regex(" {2,}"), " ")])),
        "unigram_bytes": unigram_bytes,
        "precompiled_nmt": lambda: sentence_piece(normalization_rule_name="nmt_nfkc"),
        "precompiled_cf": lambda: sentence_piece(normalization_rule_name="nfkc_cf"),
        "bert": word_piece,
        "bert_cased": lambda: word_piece(normalizers.BertNormalizer(lowercase=False, strip_accents=True), cleanup=False),
        "bert_raw": lambda: word_piece(normalizers.BertNormalizer(clean_text=False, handle_chinese_chars=False), max_input_chars_per_word=20),
        "bert_parts": lambda: word_piece(normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]),
                                         chain([pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation()])),
        "word_level": word_level,
        "delimiter": lambda: char_bpe(pre_tokenizers.CharDelimiterSplit("e")),
        "fixed_length": lambda: char_bpe(pre_tokenizers.FixedLength(4)),
        "no_pre_tokenizer_nfkd": lambda: char_bpe(space(), normalizer=normalizers.NFKD()),
        "replace_string": lambda: char_bpe(space(), normalizer=normalizers.Sequence([
            normalizers.Replace("an", "AN"), normalizers.Replace(Regex(r"[aeiou]{2}|\d+"), "·"), normalizers.Prepend("^")])),
        "strip_left": lambda: bpe(plain(), normalizer=normalizers.Strip(left=True, right=False)),
    }
    for behavior in ["removed", "isolated", "merged_with_previous", "merged_with_next", "contiguous"]:
        for invert in [False, True]:
            table[f"split_{behavior}{'_inverted' if invert else ''}"] = (
                lambda b=behavior, i=invert: bpe(chain([split(Regex(r"\s|[,.]+"), b, i), plain()]), size=400))
        table[f"punctuation_{behavior}"] = lambda b=behavior: bpe(chain([pre_tokenizers.Punctuation(b), plain()]), size=400)
    table["split_string"] = lambda: bpe(chain([split("an", "merged_with_previous"), plain()]), size=400)
    return table


def random_texts(count):
    generator = random.Random(7)
    blocks = [(0x20, 0x7E), (0xA0, 0x17F), (0x300, 0x36F), (0x370, 0x3FF), (0x400, 0x4FF), (0x590, 0x6FF), (0x900, 0x97F), (0xE00, 0xE7F),
              (0x1100, 0x11FF), (0x1E00, 0x1FFF), (0x2000, 0x206F), (0x2100, 0x218F), (0x3000, 0x30FF), (0x4E00, 0x4FFF), (0xAC00, 0xACFF),
              (0xF900, 0xFAFF), (0xFE00, 0xFFEF), (0x1F1E6, 0x1F64F), (0x0, 0x1F), (0x1D400, 0x1D4FF)]
    texts = []
    for _ in range(count):
        picked = generator.sample(blocks, 3) + [(0x20, 0x7E), (0x20, 0x20)]
        codes = [generator.randint(*generator.choice(picked)) for _ in range(generator.randint(1, 40))]
        # U+061D is younger than the package's table of punctuation
        texts.append("".join(chr(code) for code in codes if code != 0x61D))
    return texts


def is_comparable(tokenizer, text):
    """Where typed text must not become a special or a byte token, but the package lets it."""
    if not isinstance(tokenizer.model, models.Unigram):
        return True
    return not any(mark in text for mark in ["<s>", "</s>", "<unk>", "<0x"])


def cases(tokenizer, texts):
    out = []
    for text in texts:
        if "<0x" in text and not is_comparable(tokenizer, text):
            continue
        tokenizer.encode_special_tokens = True
        plain = tokenizer.encode(text, add_special_tokens=False).ids
        tokenizer.encode_special_tokens = False
        ids = tokenizer.encode(text, add_special_tokens=False).ids
        if not is_comparable(tokenizer, text):
            plain = None
        out.append({"text": text, "ids": ids, "special": tokenizer.encode(text).ids, "plain": plain,
                    "decoded": tokenizer.decode(ids, skip_special_tokens=False)})
    return out


def write(folder, tokenizer, texts):
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "tokenizer.json").write_text(json.dumps(json.loads(tokenizer.to_str()), ensure_ascii=False, separators=(",", ":")))
    (folder / "cases.json").write_text(json.dumps(cases(tokenizer, texts), ensure_ascii=True, separators=(",", ":")))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=pathlib.Path)
    parser.add_argument("--only", default="")
    parser.add_argument("--random", type=int, default=0)
    arguments = parser.parse_args()
    wanted = [name for name in arguments.only.split(",") if name]
    texts = EDGES + PROSE + random_texts(arguments.random)
    for name, build in builders().items():
        if wanted and name not in wanted:
            continue
        tokenizer = build()
        write(arguments.out / name, tokenizer, texts)
    return 0


if __name__ == "__main__":
    sys.exit(main())
