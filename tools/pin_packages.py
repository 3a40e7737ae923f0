#!/usr/bin/env python3
"""Writes tests/python/requirements.txt: what tests/python/requirements.in asks for with everything that it needs, each
package at one version with the SHA-256 of the files that may be installed (pip --require-hashes).

Needs Python 3.11, the version whose dependencies are resolved, and the package index. Run it when the pins change."""
import html
import json
import re
import subprocess
import sys
import urllib.request
from pathlib import Path

FOLDER = Path(__file__).resolve().parent.parent / "tests/python"
INDEX = "https://pypi.org/simple"
# Pure wheels, wheels of Linux on both architectures for the Pythons that distributions have, and the source.
PYTHON = re.compile(r"-(py3|py2\.py3|cp3\d+-abi3|cp31[1-4]-cp31[1-4])-")
PLATFORM = re.compile(r"-any\.whl$|(many|musl)linux[^-]*_(x86_64|aarch64)(\.(many|musl)linux[^-]*)?\.whl$")


def resolved():
    """Name and version of every package, by name."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--dry-run", "--ignore-installed", "--report", "-",
               "-r", FOLDER / "requirements.in"]
    report = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    metadata = [item["metadata"] for item in report["install"]]
    return sorted((re.sub(r"[-_.]+", "-", data["name"]).lower(), data["version"]) for data in metadata)


def hashes(name, version):
    """SHA-256 of the files of a release that may be installed."""
    with urllib.request.urlopen(f"{INDEX}/{name}/", timeout=60) as answer:
        page = answer.read().decode()
    stem = re.sub(r"-", "[-_.]", re.escape(name).replace(r"\-", "-"))
    source = re.compile(rf"{stem}-{re.escape(version)}\.(tar\.gz|zip)$", re.IGNORECASE)
    wheel = re.compile(rf"{stem}-{re.escape(version)}(-\d[^-]*)?-[^-]+-[^-]+-[^-]+\.whl$", re.IGNORECASE)
    found = set()
    for address in re.findall(r'href="([^"]+)"', page):
        address, _, digest = html.unescape(address).partition("#sha256=")
        file = address.rpartition("/")[2]
        if source.match(file) or (wheel.match(file) and PYTHON.search(file) and PLATFORM.search(file)):
            found.add(digest)
    if not found:
        raise SystemExit(f"{name} {version} has no files at {INDEX}")
    return sorted(found)


def main():
    if sys.version_info[:2] != (3, 11):
        raise SystemExit("the dependencies are those of Python 3.11: run it with that")
    lines = ["# Made by tools/pin_packages.py from requirements.in."]
    for name, version in resolved():
        lines.append(" \\\n".join([f"{name}=={version}", *(f"    --hash=sha256:{one}" for one in hashes(name, version))]))
    (FOLDER / "requirements.txt").write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
