#!/usr/bin/env bash
# Builds sluice for one Hopper GPU, checks it against the references and times it next to its limits and to other
# engines. Needs CUDA 13, CMake, ninja, a C++20 compiler and the packages of tools/packages.txt; what the machine lacks
# is taken from .deb files in PACKAGES, unpacked beside the build.
#   bench/gpu.sh [pack | portable | build test check fault sanitize steps units engine shapes quant http]   all but the
#   first two without arguments
# pack: fetches those .deb files for a GPU's machine (x86-64) on one that has apt, and with pip the headers of FlashInfer
# (a wheel in .deps/wheels, as cmake/cuda.cmake names it) and the source of xgrammar (in .deps/sources, as
# cmake/xgrammar.cmake names it), so that a machine without a network builds. quant: the same
# shape in bf16, Q4_K, Q8_0, Q6_K, AWQ and fp8 (weights and activations) through the engine. shapes: small, mixture and latent-attention models (bench/shapes.py;
# SHAPES: which) beside their floors and vLLM. portable: test, check and sanitize with the GPU used as if it were of each
# of ARCHS, so that the kernels run that other architectures fall back to; with a BUILD for another architecture
# (CMAKE_ARGUMENTS=-DSLUICE_CUDA_ARCHITECTURES=80) the other steps run its code, which the driver compiles for this GPU.
# BUILD: the build folder; LOGS: where full output goes; GOLDEN: folders with reference outputs; MODEL: where the
# random model of 16 GB is written.
set -uo pipefail
cd "$(dirname "$0")/.."
BUILD=${BUILD:-build/cuda}
LOGS=${LOGS:-$BUILD/logs}
PACKAGES=${PACKAGES:-.cudatree/packages}
GOLDEN=${GOLDEN:-../shared/golden ../shared/golden-gguf}
MODEL=${MODEL:-/tmp/sluice-random-8b}
steps=${*:-build test check fault sanitize steps units engine shapes quant http}
failed=0
wants() { [[ " $steps " == *" $1 "* ]]; }
say() { echo "== $* ($SECONDS s)"; }

pack() {
  local state=$PWD/$PACKAGES.apt
  mkdir -p "$PACKAGES" "$state/lists/partial" "$state/cache/archives/partial" && : >"$state/status"
  local options=(-o APT::Architecture=amd64 -o APT::Architectures=amd64 -o Dir::State::lists="$state/lists"
    -o Dir::State::status="$state/status" -o Dir::Cache="$state/cache")
  command -v apt-get >/dev/null || { echo "pack needs apt-get" >&2; exit 1; }
  apt-get "${options[@]}" update >/dev/null &&
    (cd "$PACKAGES" && apt-get "${options[@]}" download libspdlog-dev libspdlog1.10 libfmt-dev libfmt9 libcli11-dev \
      libpcre2-dev libpcre2-8-0 libboost1.81-dev libboost-json1.81-dev libboost-json1.81.0 \
      libboost-container1.81.0 libboost-container1.81-dev librapidcheck-dev libgtest-dev libgmock-dev \
      libjpeg62-turbo-dev libjpeg62-turbo libpng-dev libpng16-16 zlib1g-dev libwebp-dev libwebp7 \
      libmimalloc-dev libmimalloc2.0)
  rm -rf "$state"
  pack_flashinfer
  pack_xgrammar
}

# The source that cmake/xgrammar.cmake compiles, checked as there.
pack_xgrammar() {
  local version sum
  version=$(sed -n 's/^set(XGRAMMAR_VERSION \(.*\))$/\1/p' cmake/xgrammar.cmake)
  sum=$(sed -n 's/^set(XGRAMMAR_SHA256 \(.*\))$/\1/p' cmake/xgrammar.cmake)
  python3 tools/fetch_source.py xgrammar "$version" "$sum" .deps/sources || exit 1
  echo "packed: .deps/sources/xgrammar-$version.tar.gz"
}

# The wheel that cmake/cuda.cmake unpacks, checked as there.
pack_flashinfer() {
  local version sum wheels=.deps/wheels wheel
  version=$(sed -n 's/^set(FLASHINFER_VERSION \(.*\))$/\1/p' cmake/cuda.cmake)
  sum=$(sed -n 's/^set(FLASHINFER_SHA256 \(.*\))$/\1/p' cmake/cuda.cmake)
  wheel=$wheels/flashinfer_python-$version-py3-none-any.whl
  [[ -f $wheel ]] || python3 -m pip download --quiet --no-deps --only-binary :all: --dest "$wheels" \
    "flashinfer-python==$version" || { echo "pack: flashinfer-python $version cannot be fetched" >&2; exit 1; }
  sha256sum --check --status <<<"$sum  $wheel" || { echo "pack: $wheel is not what cmake/cuda.cmake names" >&2; exit 1; }
  echo "packed: $PACKAGES ($(ls "$PACKAGES" | wc -l) files) and $wheel"
}

# Says what is missing, in the words of tools/packages.txt.
missing() {
  local root=$1 absent=()
  has() { for folder in "$root/usr" /usr /usr/local; do compgen -G "$folder/$1" >/dev/null && return; done; return 1; }
  has 'include/fmt/core.h' || absent+=(libfmt-dev)
  has 'include/spdlog/spdlog.h' || absent+=(libspdlog-dev)
  has 'include/CLI/CLI.hpp' || absent+=(libcli11-dev)
  has 'include/pcre2.h' || absent+=(libpcre2-dev)
  has 'include/jpeglib.h' || absent+=(libjpeg-dev)
  has 'include/png.h' || absent+=(libpng-dev)
  has 'include/webp/decode.h' || absent+=(libwebp-dev)
  has 'include/gmock/gmock.h' || absent+=(libgmock-dev)
  has 'include/rapidcheck.h' || absent+=(librapidcheck-dev)
  has 'lib/*/libboost_json*' || absent+=(libboost-json1.81-dev)
  for tool in cmake ninja; do command -v $tool >/dev/null || absent+=($tool); done
  command -v nvcc >/dev/null || [[ -x /usr/local/cuda/bin/nvcc ]] || absent+=("CUDA 13 (nvcc)")
  ((${#absent[@]} == 0)) && return
  echo "missing: ${absent[*]}; install them, or put their .deb files into $PACKAGES (bench/gpu.sh pack)" >&2
  return 1
}

build() {
  local root=$PWD/$BUILD.packages
  if compgen -G "$PACKAGES/*.deb" >/dev/null && [[ ! -d $root ]]; then
    command -v dpkg >/dev/null || { echo "unpacking $PACKAGES needs dpkg" >&2; exit 1; }
    mkdir -p "$root"
    for package in "$PACKAGES"/*.deb; do dpkg -x "$package" "$root"; done
  fi
  missing "$root" || exit 1
  cmake --preset cuda -B "$BUILD" -DCMAKE_PREFIX_PATH="$root/usr" -DCMAKE_CXX_FLAGS_RELWITHDEBINFO=-O2 \
    ${CMAKE_ARGUMENTS:-} >"$LOGS/configure.log" 2>&1 || { tail -20 "$LOGS/configure.log"; exit 1; }
  ninja -k 0 -C "$BUILD" sluice test_cuda test_golden test_runtime bench_gpu bench_gpu_gemm bench_gpu_experts bench_gpu_units bench_engine random_model \
    random_gguf >"$LOGS/build.log" 2>&1 ||
    { grep -E -A6 "FAILED|error" "$LOGS/build.log" | head -120; exit 1; }
}

check() {
  local folder
  for root in $GOLDEN; do
    for folder in "$root"/*; do
      case $folder in
        *.gguf) local name=${folder##*/}; set -- --model "$folder" "${root%-gguf}/${name%.gguf}" ;;
        *) [[ -f $folder/golden.json ]] || continue; set -- "$folder" ;;
      esac
      local answer; answer=$("$BUILD/sluice" check --device cuda "$@" 2>&1) || failed=1
      echo "$answer" >>"$LOGS/check.log"
      printf '%-40s %s  %s\n' "${folder##*/}" "${answer##*$'\n'}" \
        "$(grep -oE 'error [0-9.e+-]+|greedy [0-9]+/[0-9]+' <<<"$answer" | sort | tr '\n' ' ')"
    done
  done
}

# SANITIZED: golden folders. Racecheck gets one kernel after the other, and all of them: it fails by itself where a kernel
# starts before the one in front has ended, and where it is told to leave some out.
sanitize() {
  local tool mode
  local -x CUDA_LAUNCH_BLOCKING
  for tool in memcheck racecheck initcheck; do
    CUDA_LAUNCH_BLOCKING=0
    if [[ $tool == racecheck ]]; then CUDA_LAUNCH_BLOCKING=1; fi
    for mode in "" deterministic; do
      compute-sanitizer --tool $tool --error-exitcode 9 "$BUILD/bench_gpu" ${SLUICE_CUDA_ARCH:+arch=$SLUICE_CUDA_ARCH} \
        $mode short >"$LOGS/$tool.${mode:-plain}.log" 2>&1 || failed=1
      echo "$tool, steps ${mode:-plain}: $(tail -1 "$LOGS/$tool.${mode:-plain}.log")"
    done
    for folder in ${SANITIZED:-}; do
      compute-sanitizer --tool $tool --error-exitcode 9 "$BUILD/sluice" check --device cuda --tuning off "$folder" \
        >"$LOGS/$tool.${folder##*/}.log" 2>&1 || failed=1
      echo "$tool, ${folder##*/}: $(tail -1 "$LOGS/$tool.${folder##*/}.log")"
    done
  done
}

run_tests() {
  "$BUILD/test_cuda" >"$LOGS/test.log" 2>&1 || failed=1
  "$BUILD/test_golden" --gtest_filter='*GpuGolden*' >>"$LOGS/test.log" 2>&1 || failed=1
  grep -E "^\[  (FAILED|PASSED|SKIPPED)|tests ran" "$LOGS/test.log"
}

# ARCHS: what to be; 80 and 89 have neither TMA nor wgmma, 100 and 120 no wgmma, 89 and 120 little shared memory.
portable() {
  local logs=$LOGS arch
  for arch in ${ARCHS:-80}; do
    local LOGS=$logs/sm_$arch
    local -x SLUICE_CUDA_ARCH=$arch
    mkdir -p "$LOGS"
    run_tests
    say "tested as sm_$arch"
    check
    say "checked as sm_$arch"
    sanitize
    say "sanitized as sm_$arch"
  done
}

mkdir -p "$LOGS"
if wants pack; then pack; fi
if wants build; then build; say built; fi
if wants test; then
  run_tests
  say tested
fi
if wants check; then check; say checked; fi
if wants fault; then
  "$BUILD/test_cuda" --gtest_also_run_disabled_tests --gtest_filter='*DeviceFault*' >"$LOGS/fault.log" 2>&1 || failed=1
  tail -1 "$LOGS/fault.log"
fi
if wants sanitize; then sanitize; say sanitized; fi
if wants portable; then portable; fi
if wants steps; then
  "$BUILD/bench_gpu" decode 2>&1 | tee "$LOGS/decode.log" || failed=1
  "$BUILD/bench_gpu" prefill 2>&1 | tee "$LOGS/prefill.log" || failed=1
  "$BUILD/bench_gpu" fp8 decode 2>&1 | tee "$LOGS/decode_fp8.log" || failed=1
  "$BUILD/bench_gpu" fp8 prefill 2>&1 | tee "$LOGS/prefill_fp8.log" || failed=1
  say "steps timed"
fi
if wants units; then
  "$BUILD/bench_gpu_units" 2>&1 | tee "$LOGS/units.log" || failed=1
  say "units timed"
fi
if wants quant; then
  [[ -f $MODEL/model.safetensors ]] || "$BUILD/random_model" "$MODEL" || exit 1
  for type in bf16 ${QUANT:-Q4_K Q8_0 Q6_K}; do
    file=$MODEL
    if [[ $type != bf16 ]]; then file=$MODEL-$type.gguf; fi
    [[ -e $file ]] || "$BUILD/random_gguf" "$file" "$type" || exit 1
    say "$type"
    "$BUILD/bench_engine" "$file" decode1 decode8 decode64 decode128 prefill 2>&1 | tee "$LOGS/quant.$type.log" || failed=1
    if [[ $type != bf16 ]]; then rm "$file"; fi
  done
  say "awq"
  "$BUILD/random_model" "$MODEL-awq" llama-3.1-8b awq || exit 1
  "$BUILD/bench_engine" "$MODEL-awq" decode1 decode8 decode64 decode128 prefill 2>&1 | tee "$LOGS/quant.awq.log" || failed=1
  rm -r "$MODEL-awq"
  say "fp8"
  "$BUILD/bench_engine" "$MODEL" quantize=fp8 decode1 decode128 long prefill 2>&1 | tee "$LOGS/quant.fp8.log" || failed=1
  say "quantized models timed"
fi
if wants engine; then
  [[ -f $MODEL/model.safetensors ]] || "$BUILD/random_model" "$MODEL" || exit 1
  say "model written"
  "$BUILD/bench_engine" "$MODEL" ${LOADS:-decode sampled prefill mixed long} 2>&1 | tee "$LOGS/engine.log" || failed=1
  say "engine timed"
  "$BUILD/bench_engine" "$MODEL" deterministic=on ${LOADS:-decode prefill} 2>&1 | tee "$LOGS/deterministic.log" || failed=1
  say "deterministic mode timed"
fi
if wants shapes; then
  python3 bench/shapes.py "$BUILD" "${MODEL%/*}" ${SHAPES:-} 2>&1 | tee "$LOGS/shapes.log" || failed=1
  say "shapes timed"
fi
# Three loads, with and without a limit on the time between tokens.
time_http() {
  "$BUILD/sluice" serve -m "$MODEL" --served-model-name random --device cuda --ctx-size 8192 --prefix-cache off \
    --port 18080 "$@" >"$LOGS/serve.log" 2>&1 &
  local server=$! load
  for _ in $(seq 300); do
    "$BUILD/sluice" healthcheck --url http://127.0.0.1:18080/ready >/dev/null 2>&1 && break
    kill -0 $server 2>/dev/null || break
    sleep 0.1
  done
  say "server ready${*:+ with $*}"
  for load in "128 2 1000 1000" "64 4 1000 200" "32 4 4000 200"; do
    python3 bench/http_load.py 18080 ${HTTP:-$load} 2>&1 | tee -a "$LOGS/http.log" || failed=1
    [[ -z ${HTTP:-} ]] || break
  done
  kill $server
  wait $server
}
if wants http; then
  [[ -f $MODEL/model.safetensors ]] || "$BUILD/random_model" "$MODEL" || exit 1
  : >"$LOGS/http.log"
  time_http
  time_http --target-tbt 0
  say "server timed"
fi
exit $failed
