#!/usr/bin/env python3
"""Style numbers of src/: lengths of files and functions, what is over the house limits, and the limits that are hard.

House limits are a reason to look; only the hard ones fail. Functions are found by braces, not by a compiler: good enough
to count lines."""
import re
import sys
from collections import Counter
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SUFFIXES = (".h", ".cpp", ".cu", ".cuh")
FILE_LINES, KERNEL_FILE_LINES = 400, 600
FUNCTION_LINES, KERNEL_FUNCTION_LINES = 60, 120
PARAMETERS = 5
HARD_FILE_LINES, HARD_FUNCTION_LINES = 800, 200
HARD_P90_FILE, HARD_P95_FUNCTION = 400, 60
HARD_ARCH_LINES, HARD_README_LINES = 60, 150
FOLDER_FILES, HARD_FOLDER_FILES = 25, 30
ONE_FILE_PER_FAMILY = "src/models/arch"  # no limit there


def blank(match):
    """Spaces in place of a comment or literal, newlines kept, so that positions and line numbers stay."""
    return re.sub(r"[^\n]", " ", match[0])


def strip(text):
    """The text without comments, strings, characters and preprocessor lines."""
    text = re.sub(r'R"([^(\s]*)\(.*?\)\1"', blank, text, flags=re.S)
    text = re.sub(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'', blank, text, flags=re.S)
    return re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", blank, text, flags=re.M)


def outside_brackets(head):
    """The part of a declaration outside (), [] and <>."""
    head = re.sub(r"operator\s*[^\w\s]+", "operator", head)
    previous = None
    while previous != head:
        previous = head
        head = re.sub(r"\([^()]*\)|\[[^\[\]]*\]|<[^<>]*>", "", head)
    return head


def is_function(head):
    """Whether a brace after this text, outside any function, opens a function's body."""
    plain = outside_brackets(head)
    if re.match(r"\s*(?:export\s+)?(?:inline\s+)?(?:namespace|extern|class|struct|union|enum)\b", plain.replace("template", "")):
        return False
    return "(" in head and "=" not in plain


def count_parameters(head):
    start = head.find("(", head.rfind("operator()") + len("operator()") if "operator()" in head else 0)
    depth, commas, seen = 0, 0, False
    for character in head[start:]:
        if character in "([{<":
            depth += 1
        elif character in ")]}>":
            depth -= 1
            if depth == 0:
                break
        elif character == "," and depth == 1:
            commas += 1
        elif not character.isspace():
            seen = True
    return commas + 1 if seen else 0


def functions(text):
    """(first line, lines, parameters, name) of each function body in the text."""
    text = strip(text)
    scopes, inside = [], None  # inside: (depth of the open function, where its head starts, the head)
    head_start = 0
    for match in re.finditer(r"[{};]", text):
        here, character = match.start(), match[0]
        if character == "{":
            head = text[head_start:here]
            member = re.search(r"\)\s*(?:noexcept\s*)?:(?!:)", head) and re.search(r"[\w>]\s*$", head)
            scopes.append("member" if inside is None and member else "scope")
            if inside is None and not member and is_function(head):
                inside = (len(scopes), head_start + len(head) - len(head.lstrip()), head)
        elif character == "}":
            kind = scopes.pop() if scopes else "scope"
            if inside and len(scopes) < inside[0]:
                first = text.count("\n", 0, inside[1]) + 1
                name = re.search(r"([~\w:]+)\s*\(", inside[2])
                yield first, text.count("\n", inside[1], here) + 1, count_parameters(inside[2]), name[1] if name else "?"
                inside = None
            if kind == "member":
                continue
        if inside is None and (not scopes or scopes[-1] != "member"):
            head_start = here + 1


def percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0


def main():
    files, lengths, over, hard = {}, [], [], []
    for path in sorted(p for p in (ROOT / "src").rglob("*") if p.suffix in SUFFIXES):
        text, name = path.read_text(), path.relative_to(ROOT).as_posix()
        kernel = name.startswith("src/kernels/")
        files[name] = text.count("\n")
        if files[name] > (KERNEL_FILE_LINES if kernel else FILE_LINES):
            over.append(f"{name}: {files[name]} lines")
        if name.startswith("src/models/arch/") and files[name] > HARD_ARCH_LINES:
            hard.append(f"{name}: {files[name]} lines, the limit for an architecture is {HARD_ARCH_LINES}")
        if files[name] > HARD_FILE_LINES:
            hard.append(f"{name}: {files[name]} lines, no file may have over {HARD_FILE_LINES}")
        for line, length, parameters, function in functions(text):
            lengths.append(length)
            where = f"{name}:{line}: {function}"
            if length > (KERNEL_FUNCTION_LINES if kernel else FUNCTION_LINES):
                over.append(f"{where} has {length} lines")
            if length > HARD_FUNCTION_LINES:
                hard.append(f"{where} has {length} lines, no function may have over {HARD_FUNCTION_LINES}")
            if parameters > PARAMETERS:
                over.append(f"{where} has {parameters} parameters")
    for folder, count in sorted(Counter(name.rpartition("/")[0] for name in files).items()):
        if folder != ONE_FILE_PER_FAMILY and count > FOLDER_FILES:
            (hard if count > HARD_FOLDER_FILES else over).append(f"{folder}: {count} files, a folder has about {FOLDER_FILES} at most")
    p90, p95 = percentile(files.values(), 0.90), percentile(lengths, 0.95)
    readme = (ROOT / "README.md").read_text().count("\n")
    for value, limit, what in ((p90, HARD_P90_FILE, "p90 of file lengths"), (p95, HARD_P95_FUNCTION, "p95 of function lengths"),
                               (readme, HARD_README_LINES, "README.md in lines")):
        if value > limit:
            hard.append(f"{what} is {value}, the limit is {limit}")
    for line in over:
        print(f"over the house limit: {line}")
    for line in hard:
        print(f"over a hard limit: {line}")
    print(f"style: {len(files)} files, p90 {p90} lines; {len(lengths)} functions, p95 {p95} lines; {len(over)} to look at, {len(hard)} too much")
    return 1 if hard else 0


if __name__ == "__main__":
    sys.exit(main())
