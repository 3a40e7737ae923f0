# The CUDA back-end: compiler, headers and libraries. FlashInfer's wheel brings its own headers, CUTLASS and the CCCL
# they need; it is fetched and unpacked once into .deps.
option(SLUICE_CUDA "build the CUDA back-end" OFF)
if(NOT SLUICE_CUDA)
  set(SLUICE_ONLY_kernels_cuda "(absent|gemm_table|matrix_runs|choose_features).cpp$")
  return()
endif()
set(SLUICE_WITHOUT_kernels_cuda "(absent|no_nccl|nccl_collective|no_hopper).cpp$") # the latter three: src/kernels/cuda/layer.cmake

set(SLUICE_CUDA_ARCHITECTURES "90a" CACHE STRING
  "architectures of the CUDA back-end, from 80 on; 90a: the Hopper chips with kernels made for them")
set(CMAKE_CUDA_ARCHITECTURES ${SLUICE_CUDA_ARCHITECTURES})
if(NOT DEFINED CMAKE_CUDA_COMPILER AND NOT DEFINED ENV{CUDACXX} AND EXISTS /usr/local/cuda/bin/nvcc)
  set(CMAKE_CUDA_COMPILER /usr/local/cuda/bin/nvcc)
endif()
enable_language(CUDA)
# CMake 3.25 does not know this option of nvcc 13.
set(CMAKE_CUDA20_STANDARD_COMPILE_OPTION "-std=c++20")
set(CMAKE_CUDA20_EXTENSION_COMPILE_OPTION "-std=c++20")
find_package(CUDAToolkit 13.0 REQUIRED)
if(CCACHE_PROGRAM)
  set(CMAKE_CUDA_COMPILER_LAUNCHER ${CMAKE_CXX_COMPILER_LAUNCHER})
endif()

set(FLASHINFER_VERSION 0.6.18.post1)
set(FLASHINFER_SHA256 adb6d2952b47131138e108bd2999b1fe18b71f1a4c0b2684f168753db9563991)
set(FLASHINFER_WHEEL flashinfer_python-${FLASHINFER_VERSION}-py3-none-any.whl)
set(FLASHINFER_DATA ${CMAKE_SOURCE_DIR}/.deps/flashinfer/flashinfer/data)
if(NOT EXISTS ${FLASHINFER_DATA}/include/flashinfer/attention/prefill.cuh)
  find_package(Python3 REQUIRED COMPONENTS Interpreter)
  set(wheels ${CMAKE_SOURCE_DIR}/.deps/wheels)
  if(NOT EXISTS ${wheels}/${FLASHINFER_WHEEL})
    execute_process(COMMAND ${Python3_EXECUTABLE} -m pip download --quiet --no-deps --only-binary :all:
      --dest ${wheels} flashinfer-python==${FLASHINFER_VERSION} COMMAND_ERROR_IS_FATAL ANY)
  endif()
  file(SHA256 ${wheels}/${FLASHINFER_WHEEL} found)
  if(NOT found STREQUAL FLASHINFER_SHA256)
    message(FATAL_ERROR "${FLASHINFER_WHEEL}: SHA-256 ${found}, expected ${FLASHINFER_SHA256}")
  endif()
  file(ARCHIVE_EXTRACT INPUT ${wheels}/${FLASHINFER_WHEEL} DESTINATION ${CMAKE_SOURCE_DIR}/.deps/flashinfer
    PATTERNS "flashinfer/data/include/*" "flashinfer/data/cutlass/*" "flashinfer/data/cccl/*")
endif()
add_library(flashinfer INTERFACE)
# The toolkit's CCCL is older than what FlashInfer needs: its own must be found first.
target_include_directories(flashinfer INTERFACE
  ${FLASHINFER_DATA}/cccl/thrust ${FLASHINFER_DATA}/cccl/cub ${FLASHINFER_DATA}/cccl/libcudacxx/include
  ${FLASHINFER_DATA}/include ${FLASHINFER_DATA}/cutlass/include ${FLASHINFER_DATA}/cutlass/tools/util/include)
