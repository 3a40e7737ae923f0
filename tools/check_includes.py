#!/usr/bin/env python3
"""Fails on a file of src/ that uses a name of a precompiled header (cmake/precompiled.cmake) without including that header,
itself or by way of the files of src/ that it includes. Every build precompiles those headers, so that no compiler would
say so. Kernels take no part: they are compiled without."""
import functools
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SOURCE = ROOT / "src"
# Names that no other header of the list declares.
NAMES = {
    "algorithm": r"std::(?:ranges::)?(?:sort|stable_sort|find_if|any_of|all_of|none_of|min|max|clamp|fill|copy|"
                 r"count_if|lower_bound|upper_bound|max_element|min_element|partial_sort|nth_element|reverse|remove_if)\s*[(<]",
    "atomic": r"std::atomic\b",
    "chrono": r"std::chrono::",
    "functional": r"std::(?:function|reference_wrapper)<",
    "map": r"std::(?:multi)?map<",
    "memory": r"std::(?:unique_ptr|shared_ptr|weak_ptr|make_unique|make_shared)<",
    "mutex": r"std::(?:mutex\b|lock_guard|unique_lock|scoped_lock)",
    "optional": r"std::(?:optional<|nullopt)",
    "set": r"std::(?:multi)?set<",
    "span": r"std::span<",
    "string": r"std::(?:string\b|to_string)",
    "string_view": r"std::string_view\b",
    "thread": r"std::(?:thread|jthread|this_thread)\b",
    "unordered_map": r"std::unordered_map<",
    "variant": r"std::(?:variant<|visit\b|get_if<|holds_alternative<|monostate)",
    "vector": r"std::vector<",
    "fmt/format.h": r"fmt::format\b",
}
# A header that declares what another one is asked for.
BRINGS = {"string": ("string_view",), "thread": ("chrono",), "functional": (), "fmt/core.h": ("fmt/format.h",),
          "boost/json.hpp": ("string", "string_view")}


@functools.cache
def text_of(path):
    """The file without comments and literals, which may name anything."""
    text = re.sub(r"//[^\n]*|/\*.*?\*/", "", path.read_text(), flags=re.S)
    return re.sub(r'(?<!include )"(?:[^"\\\n]|\\.)*"', '""', text)


@functools.cache
def included(path):
    """Headers between angle brackets that a file reads, by way of files of src/ too."""
    found, files, pending = set(), set(), [path]
    while pending:
        file = pending.pop()
        if file in files or not file.is_file():
            continue
        files.add(file)
        for bracket, name in re.findall(r'^\s*#\s*include\s+([<"])([^>"]+)', text_of(file), re.M):
            if bracket == "<":
                found |= {name, *BRINGS.get(name, ())}
            else:
                pending.append(SOURCE / name)
    return found


def main():
    files = sorted(path for path in SOURCE.rglob("*") if path.suffix in (".h", ".cpp")
                   and not path.relative_to(SOURCE).as_posix().startswith("kernels/"))
    problems = [f"{path.relative_to(ROOT)}: uses {re.search(pattern, text_of(path))[0].rstrip('(<')}, lacks #include <{header}>"
                for path in files for header, pattern in NAMES.items()
                if re.search(pattern, text_of(path)) and header not in included(path)]
    for problem in problems:
        print(problem)
    print(f"includes: {len(files)} files, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
