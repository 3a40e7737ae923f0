#!/usr/bin/env python3
"""Fetches the source archive of a package from Python's package index: fetch_source.py NAME VERSION SHA256 FOLDER

pip gets it by name with its own settings and checks the hash before anything of it is read. pip wants the metadata of what
it downloads and asks the package's build backend; a stand-in of that name answers here, so that no code of the package or
of what it is built with runs. Exit codes: 0 it is in FOLDER, 69 it cannot be had."""
import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

# Build backends of the packages that are fetched here.
MODULES = ("scikit_build_core/build.py", "hatchling/build.py")
BACKEND = '''
import os
def prepare_metadata_for_build_wheel(folder, settings=None):
    name = "{name}-{version}.dist-info"
    os.mkdir(os.path.join(folder, name))
    with open(os.path.join(folder, name, "METADATA"), "w") as file:
        file.write("Metadata-Version: 2.1\\nName: {name}\\nVersion: {version}\\n")
    return name
'''


def is_whole(path, digest):
    return path.exists() and hashlib.sha256(path.read_bytes()).hexdigest() == digest


def download(name, version, digest, folder):
    with tempfile.TemporaryDirectory(prefix="fetch-", dir=folder) as work:
        work = Path(work)
        for module in MODULES:
            (work / "backend" / module).parent.mkdir(parents=True)
            (work / "backend" / module).write_text(BACKEND.format(name=name, version=version))
        (work / "wanted").write_text(f"{name}=={version} --hash=sha256:{digest}\n")
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps",
                   "--no-binary=:all:", "--no-build-isolation", "--retries", "3", "--require-hashes", "--dest", str(work),
                   "-r", str(work / "wanted")]
        environment = {**os.environ, "TMPDIR": str(work), "PYTHONPATH": str(work / "backend")}
        done = subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, env=environment)
        found = list(work.glob(f"{name}-*"))
        if done.returncode != 0 or len(found) != 1:
            return False
        os.replace(found[0], folder / f"{name}-{version}.tar.gz")
        return True


def main():
    if len(sys.argv) != 5:
        print(__doc__, file=sys.stderr)
        return 64
    name, version, digest, folder = *sys.argv[1:4], Path(sys.argv[4]).absolute()
    folder.mkdir(parents=True, exist_ok=True)
    target = folder / f"{name}-{version}.tar.gz"
    if is_whole(target, digest):
        return 0
    if download(name, version, digest, folder) and is_whole(target, digest):
        return 0
    print(f"sluice: {name} {version} cannot be fetched; on a machine that reaches Python's package index:\n"
          f"  pip download --no-deps --no-binary :all: {name}=={version}\n"
          f"and put {target.name} into {folder}", file=sys.stderr)
    return 69


if __name__ == "__main__":
    sys.exit(main())
