# The kernels proper, with CUDA. Those on FlashInfer are a library of their own, so that only they see its headers; of CuTe,
# which comes with it, the others take the instructions of one warpgroup, in all shapes.
if(SLUICE_CUDA)
  file(GLOB_RECURSE own CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/kernels/cuda/*.cu)
  set_source_files_properties(${own} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON) # each takes long alone
  set(flash ${own})
  list(FILTER flash INCLUDE REGEX "/flash[^/]*$")
  list(FILTER own EXCLUDE REGEX "/flash[^/]*$")
  target_sources(sluice_kernels_cuda PRIVATE ${own})
  target_compile_options(sluice_kernels_cuda PRIVATE $<$<COMPILE_LANGUAGE:CUDA>:--expt-relaxed-constexpr>)
  target_include_directories(sluice_kernels_cuda SYSTEM PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:${FLASHINFER_DATA}/cutlass/include>)
  target_compile_definitions(sluice_kernels_cuda PRIVATE
    $<$<COMPILE_LANGUAGE:CUDA>:CUTE_SM90_EXTENDED_MMA_SHAPES_ENABLED>)
  add_library(sluice_kernels_cuda_flash OBJECT ${flash})
  target_include_directories(sluice_kernels_cuda_flash PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_compile_options(sluice_kernels_cuda_flash PRIVATE --expt-relaxed-constexpr -w)
  target_compile_definitions(sluice_kernels_cuda_flash PRIVATE NDEBUG)
  target_link_libraries(sluice_kernels_cuda_flash PRIVATE flashinfer)
  target_sources(sluice_kernels_cuda PRIVATE $<TARGET_OBJECTS:sluice_kernels_cuda_flash>)
  target_link_libraries(sluice_kernels_cuda PUBLIC CUDA::cudart_static CUDA::cublasLt)
  add_executable(bench_gpu EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/gpu_step.cpp)
  add_executable(bench_gpu_gemm EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/gpu_gemm.cpp)
  add_executable(bench_gpu_experts EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/gpu_experts.cpp)
  add_executable(bench_gpu_units EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/gpu_units.cpp)
  foreach(program bench_gpu bench_gpu_gemm bench_gpu_experts bench_gpu_units)
    target_link_libraries(${program} PRIVATE sluice_kernels_cuda)
  endforeach()
endif()
