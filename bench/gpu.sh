#!/usr/bin/env bash
# Builds the CUDA back-end, checks it against the reference and times whole steps next to their floors. Needs one
# Hopper card and CUDA 13. BUILD: the build folder; LOGS: where full output goes.
#   bench/gpu.sh [build] [test] [memcheck] [racecheck] [initcheck] [bench]     all of them without arguments
set -uo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build/cuda}
LOGS=${LOGS:-$BUILD/logs}
mkdir -p "$LOGS"
steps=${*:-build test memcheck racecheck initcheck bench}
failed=0

if [[ $steps == *build* ]]; then
  cmake -G Ninja -B "$BUILD" -DCMAKE_BUILD_TYPE=RelWithDebInfo -DCMAKE_CXX_FLAGS_RELWITHDEBINFO="-O2 -g1" \
    -DCMAKE_CUDA_FLAGS_RELWITHDEBINFO=-O3 -DSLUICE_CUDA=ON ${CMAKE_ARGUMENTS:-} >"$LOGS/configure.log" 2>&1 &&
    ninja -C "$BUILD" test_cuda bench_gpu bench_gpu_products >"$LOGS/build.log" 2>&1 || { cat "$LOGS"/configure.log "$LOGS"/build.log | grep -E -A8 "FAILED|rror" | head -60; exit 1; }
fi
if [[ $steps == *test* ]]; then
  "$BUILD/test_cuda" >"$LOGS/test.log" 2>&1 || failed=1
  grep -E "^\[  (FAILED|PASSED|SKIPPED)|tests ran" "$LOGS/test.log"
fi
for tool in memcheck racecheck initcheck; do
  [[ $steps == *$tool* ]] || continue
  compute-sanitizer --tool $tool --error-exitcode 1 "$BUILD/bench_gpu" short >"$LOGS/$tool.log" 2>&1 || failed=1
  tail -2 "$LOGS/$tool.log"
done
if [[ $steps == *bench* ]]; then
  "$BUILD/bench_gpu" decode 2>&1 | tee "$LOGS/decode.log" || failed=1
  "$BUILD/bench_gpu" prefill 2>&1 | tee "$LOGS/prefill.log" || failed=1
  "$BUILD/bench_gpu" fp8 decode 2>&1 | tee "$LOGS/decode_fp8.log" || failed=1
  "$BUILD/bench_gpu" fp8 prefill 2>&1 | tee "$LOGS/prefill_fp8.log" || failed=1
  "$BUILD/bench_gpu_products" 2>&1 | tee "$LOGS/products.log" || failed=1
  cat <<'TABLE'
# the same shape elsewhere, tok/s at batch 1 / 8 / 32 / 64 / 128 / 256, and prefill of 16 x 2,048:
#   vLLM 0.25.1   206 / 1,551 / 5,484 / 9,530 / 14,992 / 18,897     43,148
#     fp8         286 / 2,133 / 6,268 / 12,126 / 17,762 / 22,184    67,245
#   llama.cpp     210 / 1,209 / 3,896 / 6,257 /  8,985 / -          23,000-31,000
TABLE
fi
exit $failed
