#!/usr/bin/env python3
"""Tokenizers against the `tokenizers` package: the default model's, and one tokenizer.json for every kind of part.

The tokenizers of tools/make_tokenizer_cases.py are trained here and now. The program tokenizes a corpus with each of
them; the test program test_tokenizer goes through all of their cases one by one, with special tokens and back to text.
"""
import os
import random
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
BINARY = Path(os.environ.get("SLUICE_BINARY", ROOT / "build/release/sluice"))
MODEL = Path(os.environ.get("SLUICE_MODELS", ROOT / ".models")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
RANDOM_TEXTS = 40  # for each tokenizer

try:
    import tokenizers
    sys.path.insert(0, str(ROOT / "tools"))
    import make_tokenizer_cases as made
    from library_tokenizer import smollm
except ImportError as missing:
    print(f"the packages of tests/python/requirements.txt are not here: {missing}\n0 passed, 0 failed, 1 skipped")
    sys.exit(0)

# Scripts that the training texts lack.
MORE_SCRIPTS = [
    "ქართული ენა საქართველოს ოფიციალური ენაა. ანბანი ოცდაცამეტი ასოსგან შედგება.",
    "Հայերենը հնդեվրոպական լեզվաընտանիքի առանձին ճյուղ է։ Այբուբենը ստեղծել է Մեսրոպ Մաշտոցը։",
    "বাংলা ভাষা দক্ষিণ এশিয়ার একটি ভাষা। আমি ভাত খাই, তুমি কি খাও? ১২৩৪",
    "தமிழ் மொழி உலகின் மிகப் பழமையான மொழிகளுள் ஒன்று. யாதும் ஊரே யாவரும் கேளிர்.",
    "አማርኛ የኢትዮጵያ የሥራ ቋንቋ ነው። ሰላም ለዓለም፤ ፩፪፫",
    "ភាសាខ្មែរ គឺជាភាសាផ្លូវការរបស់ប្រទេសកម្ពុជា។ ១២៣",
    "မြန်မာဘာသာစကားသည် မြန်မာနိုင်ငံ၏ ရုံးသုံးဘာသာစကား ဖြစ်သည်။",
    "ภาษาไทยเป็นภาษาราชการ ๑๒๓ ຂ້ອຍເວົ້າພາສາລາວ བོད་སྐད། ᏣᎳᎩ ᠮᠣᠩᠭᠣᠯ",
]
EMOJI = [
    "🙂🙃😀😃😄😁😆😅🤣😂 👍🏻👍🏼👍🏽👍🏾👍🏿 👩‍💻👨‍🔬🧑‍🚀 🏳️‍🌈🏴‍☠️ 🇺🇳🇯🇵🇧🇷 #️⃣*️⃣0️⃣ ♥︎♥️ ☎️⌛️",
    "Great work!!! 🎉🎉🎉 see you @ 5️⃣:3️⃣0️⃣ ❤️‍🔥 ¯\\_(ツ)_/¯ (╯°□°)╯︵ ┻━┻ ʕ•ᴥ•ʔ",
]
CODE = [
    "fn main() -> Result<(), Box<dyn Error>> {\n\tlet v: Vec<u8> = vec![0x1F, 0b1010, 1_000];\n\tprintln!(\"{v:?}\");\n\tOk(())\n}\n",
    "const f = async ({a, b = 10, ...rest}) => await fetch(`/api/${a}?b=${b}`).then(r => r.json()); // ok?\r\n\r\n",
    "<!DOCTYPE html>\n<html>\n    <body class=\"x y\">&nbsp;<a href='#top'>Top</a></body>\n</html>\n",
    "for i in {1..10}; do printf '%03d\\n' \"$((i ** 2))\"; done | sort -rn | head -n 3 > /tmp/out 2>&1\n",
    "\\begin{equation}\\sum_{i=0}^{n} x_i^2 = \\frac{1}{2}\\end{equation} % TeX\n",
    "x = {'a': 1, \"b\": [2, 3.0e-5, 0xFF]}  # comment\n\n\nclass A(B):\n    def __init__(self, *args, **kwargs) -> None: ...\n",
]


def corpus():
    own = [path.read_text()[:20_000] for path in (ROOT / "src/tokenizer/models/bpe.cpp", ROOT / "ARCHITECTURE.md", ROOT / "sluice")]
    return made.PROSE + MORE_SCRIPTS + EMOJI + CODE + own


def ids_of(model, text, *options):
    done = subprocess.run([BINARY, "tokenize", "-m", model, *options], input=text.encode(), capture_output=True)
    assert done.returncode == 0, done.stderr.decode().strip()
    return [int(word) for word in done.stdout.split()]


def first_difference(ours, theirs):
    at = next((i for i, (a, b) in enumerate(zip(ours, theirs)) if a != b), min(len(ours), len(theirs)))
    return f"token {at} of {len(theirs)}: {ours[at:at + 5]}, the package {theirs[at:at + 5]}"


class Counts:
    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def check(self, name, ours, theirs):
        if ours == theirs:
            self.passed += 1
            return
        self.failed += 1
        print(f"FAILED: {name}: {first_difference(ours, theirs)}")


def test_default_model(counts):
    if not MODEL.exists():
        print(f"skipped: the default model is not at {MODEL}")
        counts.skipped += 1
        return
    judge = smollm(MODEL)
    judge.encode_special_tokens = True
    texts = corpus() + made.EDGES + made.random_texts(RANDOM_TEXTS)
    for text in texts:
        counts.check(f"default model: {text[:40]!r}", ids_of(MODEL, text), judge.encode(text, add_special_tokens=False).ids)
    whole = "\n\n".join(texts)
    counts.check("default model: everything as one text", ids_of(MODEL, whole), judge.encode(whole, add_special_tokens=False).ids)
    judge.encode_special_tokens = False
    chat = "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi 👋<|im_end|>\n<|im_start|>assistant\n"
    counts.check("default model: special tokens", ids_of(MODEL, chat, "--special"), judge.encode(chat, add_special_tokens=False).ids)


def test_each_kind(counts, folder):
    source = random.Random(5)
    for name, build in made.builders().items():
        judge = build()
        texts = corpus() + made.EDGES + made.random_texts(RANDOM_TEXTS)
        kept = [text for text in texts if made.is_comparable(judge, text)]
        source.shuffle(kept)
        made.write(folder / name, judge, texts[-RANDOM_TEXTS:] + made.EDGES + corpus())
        for separator in ("", " ", "\n"):
            whole = separator.join(kept)
            counts.check(f"{name}, joined by {separator!r}", ids_of(folder / name, whole, "--special"),
                         judge.encode(whole, add_special_tokens=False).ids)
        counts.check(f"{name} with added tokens", ids_of(folder / name, kept[0], "--special", "--add-special"),
                     judge.encode(kept[0]).ids)


def test_each_case(counts, folder):
    program = BINARY.parent / "test_tokenizer"
    if not program.exists():
        print(f"skipped: {program} is not built")
        counts.skipped += 1
        return
    done = subprocess.run([program, "--gtest_filter=TokenizerCases.NamedFoldersAreExact", "--gtest_brief=1"], text=True,
                          env={**os.environ, "SLUICE_TOKENIZER_CASES": str(folder)}, capture_output=True)
    if done.returncode == 0 and "PASSED  ] 1 test." in done.stdout:
        counts.passed += 1
        return
    counts.failed += 1
    print(f"FAILED: {program.name} over the cases of each tokenizer:\n{done.stdout[-3000:]}")


def main():
    counts = Counts()
    test_default_model(counts)
    with tempfile.TemporaryDirectory() as name:
        test_each_kind(counts, Path(name))
        test_each_case(counts, Path(name))
    print(f"against tokenizers {tokenizers.__version__}")
    print(f"{counts.passed} passed, {counts.failed} failed, {counts.skipped} skipped")
    return 1 if counts.failed else 0


if __name__ == "__main__":
    sys.exit(main())
