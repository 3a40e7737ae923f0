#!/usr/bin/env python3
"""Writes src/unicode/tables.inc from Python's unicodedata.

usage: tools/make_unicode_tables.py > src/unicode/tables.inc

Tables: general category (two stages, one letter per code point), lower and upper case, canonical combining class,
decompositions of one step, canonical compositions. Hangul syllables are arithmetic and left out.
"""
import sys
import unicodedata

LAST = 0x110000
BLOCK = 128
CATEGORIES = ["Cn", "Cc", "Cf", "Co", "Cs", "Ll", "Lm", "Lo", "Lt", "Lu", "Mc", "Me", "Mn", "Nd", "Nl", "No",
              "Pc", "Pd", "Pe", "Pf", "Pi", "Po", "Ps", "Sc", "Sk", "Sm", "So", "Zl", "Zp", "Zs"]


def is_hangul_syllable(code):
    return 0xAC00 <= code < 0xAC00 + 11172


def emit_numbers(declaration, numbers):
    print(f"{declaration} = {{")
    line = ""
    for number in numbers:
        item = f"{number},"
        if len(line) + len(item) > 118:
            print(line)
            line = ""
        line += item
    if line:
        print(line)
    print("};")


def category_tables():
    letters = [chr(ord("A") + CATEGORIES.index(unicodedata.category(chr(code)))) for code in range(LAST)]
    blocks, index = [], []
    for start in range(0, LAST, BLOCK):
        block = "".join(letters[start:start + BLOCK])
        if block not in blocks:
            blocks.append(block)
        index.append(blocks.index(block))
    runs = []
    for value in index:
        if runs and runs[-1][1] == value:
            runs[-1][0] += 1
        else:
            runs.append([1, value])
    print(f"constexpr int category_block_count = {len(blocks)};")
    print("// one row per block of 128 code points; 'A' is category 0")
    print("constexpr char category_blocks[] =")
    for number, block in enumerate(blocks):
        # '\\' cannot occur within 30 letters from 'A' except as itself: written as an escape
        print('    "' + block.replace("\\", "\\\\") + ('";' if number + 1 == len(blocks) else '"'))
    emit_numbers("// count, block\nconstexpr uint16_t category_runs[]", [number for run in runs for number in run])


def case_table(name, mapping):
    """Runs of code points that move by the same distance. What maps to several code points is left out."""
    rows = []  # [first, last, stride, delta]
    for code in range(LAST):
        mapped = mapping(chr(code))
        if mapped == chr(code) or len(mapped) != 1:
            continue
        delta = ord(mapped) - code
        if rows and rows[-1][3] == delta:
            last = rows[-1]
            stride = code - last[1]
            if stride <= 2 and (last[0] == last[1] or last[2] == stride):
                last[1], last[2] = code, stride
                continue
        rows.append([code, code, 1, delta])
    emit_numbers(f"// first, last, stride, what to add\nconstexpr int32_t {name}[]", [n for row in rows for n in row])


def wide_upper_table():
    rows = [(code, *map(ord, chr(code).upper())) for code in range(LAST) if len(chr(code).upper()) > 1]
    emit_numbers("// code point, and its upper case of two or three; 0 where there is no third\nconstexpr uint32_t wide_upper[]",
                 [n for row in rows for n in (row + (0,))[:4]])
    # written out in unicode.cpp
    assert [code for code in range(LAST) if len(chr(code).lower()) > 1] == [0x130]


def combining_table():
    rows = []  # [first, last, class]
    for code in range(LAST):
        value = unicodedata.combining(chr(code))
        if value == 0:
            continue
        if rows and rows[-1][1] == code - 1 and rows[-1][2] == value:
            rows[-1][1] = code
        else:
            rows.append([code, code, value])
    emit_numbers("// first, last, class\nconstexpr uint32_t combining_ranges[]", [n for row in rows for n in row])


def decomposition_tables():
    codes, offsets, pool = [], [], []
    compositions = []
    for code in range(LAST):
        text = unicodedata.decomposition(chr(code))
        if not text or is_hangul_syllable(code):
            continue
        parts = text.split()
        compatibility = parts[0].startswith("<")
        values = [int(part, 16) for part in parts if not part.startswith("<")]
        codes.append(code)
        offsets.append(len(pool) * 2 + int(compatibility))
        pool.extend(values)
        if not compatibility and len(values) == 2:
            pair = "".join(map(chr, values))
            if unicodedata.normalize("NFC", pair) == chr(code):
                compositions.append((values[0], values[1], code))
    offsets.append(len(pool) * 2)
    emit_numbers("constexpr uint32_t decomposition_codes[]", codes)
    emit_numbers("// where the parts begin, times two, plus one for a compatibility decomposition; one more at the end\n"
                 "constexpr uint32_t decomposition_offsets[]", offsets)
    emit_numbers("constexpr uint32_t decomposition_parts[]", pool)
    compositions.sort()
    emit_numbers("// first, second, composed\nconstexpr uint32_t composition_triples[]",
                 [n for row in compositions for n in row])


def main():
    print(f"// Unicode {unicodedata.unidata_version}, written by tools/make_unicode_tables.py")
    category_tables()
    case_table("lower_ranges", str.lower)
    case_table("upper_ranges", str.upper)
    wide_upper_table()
    combining_table()
    decomposition_tables()
    return 0


if __name__ == "__main__":
    sys.exit(main())
