"""Steps that build a preset and run its programs: GoogleTest programs, parity under qemu, fuzz targets."""
import json
import os
import platform
import shutil
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from testing.step import JOBS, ROOT, Counts, Failed, Skipped, must_run, run

PROGRAM_SECONDS = 1200  # a test program that takes longer is hanging
SLOW_SECONDS = 20  # one that takes longer gets a line of its own
# A fixed seed makes a run repeatable: the same build meets the same inputs, as far as the time goes. A hunt takes other
# seeds and longer.
FUZZ_SEED = os.environ.get("SLUICE_FUZZ_SEED", "1")
FUZZ_SECONDS = os.environ.get("SLUICE_FUZZ_SECONDS", "10")
THREADED = ("base", "dist", "parity", "runtime", "server", "engine")  # directories of tests/ that tsan runs
# Cases that measure time or long-run shares: a sanitizer makes them slow and their figures meaningless, and other cases
# run the same code under it.
MEASURING = ("SharesTest.AHundredClientsOfDifferentShapes", "SharesTest.ThroughputIsThatOfFirstCome",
             "EngineLoad.MemoryStaysFlatOverManyRequests", "PreTokenizer.TakesLinearTime",
             "Scheduler.PlanningDoesNotDependOnHowManyWait")
# What compares two distributions takes enough samples to fail where they differ much, and leaves the rest to the release.
WITHOUT_MEASURING = {"GTEST_FILTER": "-" + ":".join(MEASURING), "SLUICE_CHI_SQUARE_SAMPLES": "1024"}
HALVED = ("golden", "parity", "runtime", "tokenizer")  # those that take longest, run first and as two halves


built = {}  # (preset, targets): whether it succeeded


def build(preset, targets=("all",)):
    """Builds targets of a preset, once in a run; a build that failed is not tried and shown again."""
    if (preset, targets) not in built:
        built[preset, targets] = False
        folder = ROOT / "build" / preset
        if not (folder / "build.ninja").exists():
            must_run(f"{preset} does not configure", ["cmake", "--preset", preset])
        code, output = run(["ninja", "-C", folder, "-j", JOBS, *targets])
        if code != 0:
            # From the first error on: ninja's progress before it would push the compiler's words out of a short log.
            raise Failed(f"{preset} does not build (exit code {code})", output[max(output.find("FAILED: "), 0):])
        built[preset, targets] = True
    if not built[preset, targets]:
        raise Failed(f"{preset} did not build, see above")


def test_directories():
    """Those with a test program in every tree; tests/cuda has one only where the back-end is built."""
    return [path.name for path in sorted((ROOT / "tests").iterdir())
            if path.name not in ("cuda", "fuzz", "python") and any(path.glob("*.cpp"))]


def check_lists():
    """A name in a list of this file that no directory has would be skipped without a word."""
    unknown = sorted({*THREADED, *HALVED} - set(test_directories()))
    if unknown:
        raise Failed(f"no directory of tests/ is called {', '.join(unknown)}: see the lists in tools/testing/programs.py")
    tests = "".join(path.read_text() for path in (ROOT / "tests").glob("*/*.cpp"))
    gone = [name for name in MEASURING if f"({name.replace('.', ', ')})" not in tests]
    if gone:
        raise Failed(f"no test is called {', '.join(gone)}: see MEASURING in tools/testing/programs.py")


def run_gtest(program, prefix=(), environment=None):
    """Runs one GoogleTest program and counts its cases."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder) / "report.json"
        own = {"TMPDIR": folder, "TEST_TMPDIR": folder}  # its files are nobody else's
        code, output = run([*prefix, program, f"--gtest_output=json:{report}", "--gtest_color=no"], PROGRAM_SECONDS,
                           {**(environment or {}), **own})
        if not report.exists():
            return Counts(failed=1, note=f"{program.name} ended with {code} and no report", output=output)
        suites = json.loads(report.read_text())["testsuites"]
    counts = Counts()
    for case in (case for suite in suites for case in suite["testsuite"]):
        if case["result"] == "SKIPPED":
            counts.skipped += 1
        elif case["result"] == "COMPLETED":
            counts.failed += bool(case.get("failures"))
            counts.passed += not case.get("failures")
    if code != 0 and counts.failed == 0:
        counts.failed = 1
    if counts.failed:
        counts.note, counts.output = f"{program.name} ended with {code}", output
    return counts


def run_programs(preset, directories, prefix=(), environment=None):
    """Two at a time; no more, so that those that measure time get some."""
    check_lists()
    jobs = []
    for directory in sorted(directories, key=lambda name: name not in HALVED):
        parts = 2 if directory in HALVED else 1
        jobs += [(ROOT / "build" / preset / f"test_{directory}", part, parts) for part in range(parts)]

    def run_part(job):
        program, part, parts = job
        shard = {"GTEST_TOTAL_SHARDS": str(parts), "GTEST_SHARD_INDEX": str(part)}
        started = time.monotonic()
        counts = run_gtest(program, prefix, {**(environment or {}), **shard})
        if (seconds := time.monotonic() - started) > SLOW_SECONDS:
            print(f"       {program.name:<24}{seconds:7.1f} s", flush=True)
        return counts

    with ThreadPoolExecutor(2) as pool:
        return sum(pool.map(run_part, jobs), Counts())


def build_release():
    build("release")
    return Counts(passed=1)


def unit():
    build("release")
    return run_programs("release", test_directories())


def build_sanitized(preset, targets):
    if not shutil.which("clang++-16"):
        raise Skipped("clang++-16 is missing")
    build(preset, targets)


def asan():
    build_sanitized("asan", tuple(f"test_{name}" for name in test_directories()))
    return run_programs("asan", test_directories(), environment={"UBSAN_OPTIONS": "print_stacktrace=1", **WITHOUT_MEASURING})


def tsan():
    directories = [name for name in test_directories() if name in THREADED]
    build_sanitized("tsan", tuple(f"test_{name}" for name in directories))
    # The thread sanitizer wants addresses that are not randomised too far.
    fixed = ["setarch", platform.machine(), "-R"]
    prefix = fixed if run([*fixed, "true"])[0] == 0 else []
    environment = {"TSAN_OPTIONS": "halt_on_error=1", "SLUICE_PARITY_SMALL": "1", **WITHOUT_MEASURING}
    return run_programs("tsan", directories, prefix, environment)


def cross():
    other = "x86_64" if platform.machine() == "aarch64" else "aarch64"
    if not any((ROOT / "tests/parity").glob("*.cpp")):
        raise Skipped("tests/parity has no tests")
    for program in (f"{other}-linux-gnu-g++", f"qemu-{other}"):
        if not shutil.which(program):
            raise Skipped(f"{program} is missing")
    preset = f"cross-{other}"
    build(preset, ("test_parity",))
    emulator = [f"qemu-{other}", "-cpu", "max", "-L", f"/usr/{other}-linux-gnu"]
    return run_programs(preset, ["parity"], emulator, {"SLUICE_PARITY_SMALL": "1"})


def run_fuzz_target(name):
    program = ROOT / "build/asan" / f"fuzz_{name}"
    corpus = ROOT / "tests/fuzz/corpus" / name
    with tempfile.TemporaryDirectory() as found:
        seeds = [corpus] if corpus.is_dir() else []
        words = ROOT / "tests/fuzz" / f"{name}.dict"
        options = [f"-dict={words}"] if words.exists() else []
        code, output = run([program, f"-seed={FUZZ_SEED}", f"-max_total_time={FUZZ_SECONDS}", "-timeout=20",
                            "-rss_limit_mb=4096", f"-artifact_prefix={ROOT}/build/asan/{name}-", *options, found, *seeds])
    if code != 0:
        return Counts(failed=1, note=f"{program.name} ended with {code}", output=output)
    return Counts(passed=1)


def fuzz():
    names = [path.stem for path in sorted((ROOT / "tests/fuzz").glob("*.cpp"))]
    if not names:
        raise Skipped("tests/fuzz has no targets")
    build_sanitized("asan", tuple(f"fuzz_{name}" for name in names))
    with ThreadPoolExecutor(JOBS) as pool:
        return sum(pool.map(run_fuzz_target, names), Counts())


def cuda():
    if not (ROOT / "src/kernels/cuda").is_dir():
        raise Skipped("this tree has no src/kernels/cuda")
    if not (shutil.which("nvcc") or Path("/usr/local/cuda/bin/nvcc").exists()):
        raise Skipped("nvcc is missing")
    build("cuda", ("sluice", "test_cuda"))
    return run_programs("cuda", ["cuda"])
