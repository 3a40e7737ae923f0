#!/usr/bin/env python3
"""Each kind of fault of bench/kills.py once, under load: a server, the router and ranks of a group that are killed or hang.
Skips where mpirun or the plugin is missing."""
import shutil
import sys
from pathlib import Path

import serving
from serving import BINARY, Skip

import kills


def test_each_kind_of_fault_once():
    serving.need_model()
    if shutil.which("mpirun") is None or not (Path(BINARY).parent / "libsluice_mpi.so").exists():
        raise Skip("mpirun or libsluice_mpi.so is not there (Debian packages libopenmpi-dev and openmpi-bin)")
    problems = kills.play(kills.parse(["--kills", str(len(kills.KINDS))]))
    assert not problems, problems


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
