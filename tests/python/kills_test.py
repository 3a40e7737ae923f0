#!/usr/bin/env python3
"""Each kind of fault of bench/kills.py once, under load: a server, the router and ranks of a group that are killed or hang.
Skips where mpirun or the plugin is missing."""
import shutil
import sys
from pathlib import Path

import serving
import timing
from serving import BINARY, Skip

import kills


@timing.repeated()
def test_each_kind_of_fault_once():
    serving.need_model()
    if shutil.which("mpirun") is None or not (Path(BINARY).parent / "libsluice_mpi.so").exists():
        raise Skip("mpirun or libsluice_mpi.so is not there (Debian packages libopenmpi-dev and openmpi-bin)")
    fleet = kills.play(kills.parse(["--kills", str(len(kills.KINDS))]))
    wrong = [problem for problem in fleet.problems if problem not in fleet.late]
    assert not wrong, wrong
    timing.expect(not fleet.late, str(fleet.late))


if __name__ == "__main__":
    sys.exit(serving.run_tests(serving.tests_of(sys.modules[__name__])))
