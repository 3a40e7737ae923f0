# Compiler flags of every target, and the sanitizer and fuzz variants of them. Those that only a C++ compiler knows are
# kept from the CUDA compiler.
function(add_cxx_options)
  foreach(option IN LISTS ARGN)
    add_compile_options($<$<COMPILE_LANGUAGE:CXX>:${option}>)
  endforeach()
endfunction()
add_cxx_options(-Wall -Wextra -Wpedantic -Wshadow -Wnon-virtual-dtor -Wno-missing-field-initializers
  -fstack-protector-strong -ffp-contract=off)
add_compile_definitions(_GLIBCXX_ASSERTIONS)
# Paths in messages are relative to the source, so that a build says nothing about the machine it was made on; ccache
# turns them into paths from the build folder first.
add_cxx_options(-ffile-prefix-map=${CMAKE_SOURCE_DIR}/= -ffile-prefix-map=../../=)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_cxx_options(-Wno-restrict -Wno-psabi) # GCC 12 false positives
endif()
# The address build is also what libFuzzer drives. Left out of "undefined" are the checks that guard every pointer that
# is followed: they double the time to compile, and what they find the address sanitizer or the machine finds too.
if(SLUICE_SANITIZE STREQUAL "address")
  add_compile_options(-fsanitize=fuzzer-no-link,address,undefined
    -fno-sanitize=null,vptr,object-size,pointer-overflow -fno-sanitize-recover=all -fno-omit-frame-pointer)
  add_link_options(-fsanitize=address,undefined)
elseif(SLUICE_SANITIZE STREQUAL "thread")
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer)
  add_link_options(-fsanitize=thread)
endif()

# Results are shared between clones: paths under the source count as relative.
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM)
  set(CMAKE_CXX_COMPILER_LAUNCHER env CCACHE_BASEDIR=${CMAKE_SOURCE_DIR} CCACHE_NOHASHDIR=1
    CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_INODECACHE=1 ${CCACHE_PROGRAM})
endif()
