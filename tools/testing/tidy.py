"""clang-tidy over the files that changed, for what it has to say about the changed lines; or over all of src/."""
import json
import os
import re
import shlex
import shutil
import time
from concurrent.futures import ThreadPoolExecutor

from testing.step import JOBS, ROOT, Counts, Failed, Skipped, must_run, run

MOST_FILES = 24
SECONDS = 90
QUICK = "--checks=-clang-analyzer-*"  # whose paths take most of the time
COMMANDS, DATABASE = ROOT / "build/dev/compile_commands.json", ROOT / "build/tidy"


def git(*words):
    """The output of a git command; "" where it fails."""
    code, output = run(["git", *words])
    return output.strip() if code == 0 else ""


def base_commit():
    """What the changes are counted from: where this line left origin/main, else the commit before the last."""
    base = git("merge-base", "origin/main", "HEAD")
    if not base or base == git("rev-parse", "HEAD"):
        base = git("rev-parse", "--verify", "--quiet", "HEAD~1")
    return base


def changed_lines(base):
    """Files of src/ that changed since `base`, committed or not, with the ranges of their changed lines."""
    files, name = {}, None
    for line in git("diff", "--unified=0", "--find-renames", "--no-color", base, "--", "src").splitlines():
        hunk = re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line)
        if line.startswith("+++ "):
            name = line[6:] if re.search(r"\.(cpp|h)$", line) else None
        elif name and hunk and hunk[2] != "0":
            first = int(hunk[1])
            files.setdefault(name, []).append([first, first + int(hunk[2] or 1) - 1])
    for name in git("ls-files", "--others", "--exclude-standard", "--", "src").splitlines():
        if re.search(r"\.(cpp|h)$", name):
            files[name] = [[1, len((ROOT / name).read_text().splitlines()) or 1]]
    return files


def sources_of(files):
    """What to compile to see the changed lines, those of the most lines first; a header is seen by its own .cpp."""
    lines = {}
    for name, ranges in files.items():
        source = (ROOT / name).with_suffix(".cpp")
        if source.is_file():
            lines[source] = lines.get(source, 0) + sum(last - first + 1 for first, last in ranges)
    return sorted(lines, key=lambda source: (-lines[source], source))


def write_database():
    """The commands of the tree that compiles files one by one, without its precompiled header, which is another compiler's;
    the files they compile."""
    must_run("dev does not configure", ["cmake", "--preset", "dev"])
    entries = json.loads(COMMANDS.read_text())
    for entry in entries:
        words = shlex.split(entry.pop("command"))
        while "-include" in words:
            at = words.index("-include")
            del words[at:at + 2]
        entry["arguments"] = [word for word in words if word not in ("-Winvalid-pch", "-fpch-preprocess")]
    DATABASE.mkdir(parents=True, exist_ok=True)
    (DATABASE / "compile_commands.json").write_text(json.dumps(entries))
    return {entry["file"] for entry in entries}


def look_at(files, seconds, options=()):
    """Runs clang-tidy on those of the files that this machine compiles, until the time is spent: how many were looked at.
    Remarks fail the step."""
    if not shutil.which("clang-tidy"):
        raise Skipped("needs clang-tidy")
    compiled = write_database()
    # Not those of other machines and of CUDA. Families are compiled in batches, under other names.
    files = [file for file in files if str(file) in compiled or file.parent.name == "arch"]
    deadline = time.monotonic() + seconds

    def one(file):
        left = deadline - time.monotonic()
        if left <= 0:
            return 124, ""
        return run(["clang-tidy", "--quiet", *options, "-p", DATABASE, os.path.relpath(file, ROOT)], timeout=left)
    with ThreadPoolExecutor(JOBS) as pool:
        results = [result for result in pool.map(one, files) if result[0] != 124]
    remarks = [re.sub(r"^\d+ warnings?.* generated\.\n", "", output, flags=re.M) for code, output in results if code != 0]
    if remarks:
        raise Failed("clang-tidy has remarks", "".join(remarks))
    return len(results)


def tidy():
    base = base_commit()
    if not base:
        raise Skipped("no commit to compare with: neither origin/main nor HEAD~1 is here")
    changed = changed_lines(base)
    files = sources_of(changed)
    if not files:
        raise Skipped(f"nothing in src/ changed since {base[:7]}")
    lines = json.dumps([{"name": name, "lines": ranges} for name, ranges in changed.items()])
    seen = look_at(files[:MOST_FILES], SECONDS, [QUICK, f"--line-filter={lines}"])
    if seen == 0:
        raise Skipped(f"of {len(files)} files that changed since {base[:7]} none could be looked at in {SECONDS} s, or none "
                      "is compiled here")
    limits = "" if seen == len(files) else f" (at most {MOST_FILES} files and {SECONDS} s; tidy-all looks at everything)"
    return Counts(passed=1, note=f"{seen} of {len(files)} files that changed since {base[:7]}{limits}")


def tidy_all():
    files = sorted((ROOT / "src").rglob("*.cpp"))
    return Counts(passed=1, note=f"{look_at(files, seconds=7200)} of {len(files)} files")
