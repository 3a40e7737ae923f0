# Level files are compiled with their own instructions, chosen by name; those of the other architecture are left out.
# -O3 because the kernels' inner loops over tiles must be unrolled to stay in registers. Sanitizers look at the other files
# alone (SLUICE_FROM_RELEASE): with them the level files take minutes each, and their bounds are held by the parity tests.
if("kernels/cpu" IN_LIST SLUICE_FROM_RELEASE)
  return()
endif()
set(KERNEL_FLAGS_scalar "")
set(KERNEL_FLAGS_neon "")
set(KERNEL_FLAGS_dotprod -march=armv8.2-a+dotprod)
set(KERNEL_FLAGS_i8mm -march=armv8.2-a+dotprod+i8mm)
set(KERNEL_FLAGS_bf16 -march=armv8.2-a+dotprod+i8mm+bf16)
set(KERNEL_FLAGS_avx2 -mavx2 -mfma -mf16c)
# GCC 12's own AVX-512 header makes "undefined" registers that it then warns about.
set(KERNEL_FLAGS_avx512 ${KERNEL_FLAGS_avx2} -mavx512f -mavx512bw -mavx512vl -mavx512dq -Wno-uninitialized
  -Wno-maybe-uninitialized)
set(KERNEL_FLAGS_avx512_vnni ${KERNEL_FLAGS_avx512} -mavx512vnni)
set(KERNEL_FLAGS_avx512_bf16 ${KERNEL_FLAGS_avx512_vnni} -mavx512bf16)
set(KERNEL_FLAGS_amx ${KERNEL_FLAGS_avx512_bf16} -mamx-tile -mamx-int8 -mamx-bf16)
# For tests where nothing has AVX-512: its highest level, which holds the words of all, over AVX2, with SIMDe's headers
# copied apart from those of this machine. Without them it is compiled and not run, like the others.
set(SLUICE_SIMDE_HEADERS /usr/include/simde CACHE PATH "headers of SIMDe, for emulated AVX-512")
if(SLUICE_EMULATE_AVX512 AND EXISTS ${SLUICE_SIMDE_HEADERS})
  file(COPY ${SLUICE_SIMDE_HEADERS} DESTINATION ${CMAKE_BINARY_DIR}/emulation)
  set(KERNEL_FLAGS_avx512_bf16 ${KERNEL_FLAGS_avx2} -isystem ${CMAKE_SOURCE_DIR}/tests/parity/emulated
    -isystem ${CMAKE_BINARY_DIR}/emulation)
  set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/simd/isa.cpp PROPERTIES
    COMPILE_DEFINITIONS SLUICE_EMULATED_AVX512)
endif()
set(KERNEL_ARM neon dotprod i8mm bf16)
set(KERNEL_X86 avx2 avx512 avx512_vnni avx512_bf16 amx)

set(KERNEL_PANELS scalar neon dotprod i8mm avx2 avx512 avx512_vnni amx) # the levels whose panels have kernels of their own

set(KERNEL_COLUMNS scalar avx2 avx512) # those with panels in columns

set(KERNEL_RECURRENT scalar neon avx2 avx512) # those of layers that keep a state

foreach(level IN ITEMS scalar ${KERNEL_ARM} ${KERNEL_X86})
  set(files ${CMAKE_SOURCE_DIR}/src/kernels/cpu/simd/level_${level}.cpp)
  if(NOT EXISTS ${files}) # panels alone
    set(files "")
  endif()
  if(level IN_LIST KERNEL_PANELS)
    list(APPEND files ${CMAKE_SOURCE_DIR}/src/kernels/cpu/panels/panels_${level}.cpp)
  endif()
  if(level IN_LIST KERNEL_COLUMNS)
    list(APPEND files ${CMAKE_SOURCE_DIR}/src/kernels/cpu/panels/columns/columns_${level}.cpp)
  endif()
  if(level STREQUAL amx)
    list(APPEND files ${CMAKE_SOURCE_DIR}/src/kernels/cpu/panels/amx/tiles_amx.cpp
      ${CMAKE_SOURCE_DIR}/src/kernels/cpu/attention/attention_amx.cpp)
  endif()
  if(level IN_LIST KERNEL_RECURRENT)
    list(APPEND files ${CMAKE_SOURCE_DIR}/src/kernels/cpu/recurrent/recurrent_${level}.cpp)
  endif()
  if((level IN_LIST KERNEL_ARM AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "aarch64|arm64") OR
     (level IN_LIST KERNEL_X86 AND NOT CMAKE_SYSTEM_PROCESSOR MATCHES "x86_64|AMD64"))
    set_source_files_properties(${files} PROPERTIES HEADER_FILE_ONLY ON)
  else()
    set_source_files_properties(${files} PROPERTIES COMPILE_OPTIONS "-O3;${KERNEL_FLAGS_${level}}")
    # Instructions that GCC moves ahead of their place take registers that tiles of sums need.
    if(level IN_LIST KERNEL_ARM AND CMAKE_CXX_COMPILER_ID STREQUAL GNU)
      set_property(SOURCE ${files} APPEND PROPERTY COMPILE_OPTIONS -fno-schedule-insns)
    endif()
  endif()
endforeach()
# Loops over single lanes gain nothing from unrolling and take long to compile.
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/kernels/cpu/panels/panels_scalar.cpp PROPERTIES COMPILE_OPTIONS -O1)
