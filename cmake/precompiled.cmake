# Headers that most files read, parsed once; tools/check_includes.py finds a file that uses one and forgets to include it.
# Kernels have flags of their own and take no part.
set(PRECOMPILED_HEADERS <algorithm> <atomic> <chrono> <functional> <map> <memory> <mutex> <optional> <set> <span> <string>
  <string_view> <thread> <unordered_map> <variant> <vector> <boost/json.hpp> <fmt/format.h>)

# add_precompiled(NAME LIBRARY... HEADERS HEADER...)
function(add_precompiled name)
  if(NOT SLUICE_PRECOMPILE)
    return()
  endif()
  cmake_parse_arguments(PARSE_ARGV 1 given "" "" HEADERS)
  file(WRITE ${CMAKE_BINARY_DIR}/${name}.cpp "")
  add_library(${name} OBJECT ${CMAKE_BINARY_DIR}/${name}.cpp)
  target_link_libraries(${name} PRIVATE ${LIBRARIES_base} ${given_UNPARSED_ARGUMENTS})
  target_precompile_headers(${name} PRIVATE ${given_HEADERS})
endfunction()

function(use_precompiled target name)
  if(SLUICE_PRECOMPILE)
    target_precompile_headers(${target} REUSE_FROM ${name})
  endif()
endfunction()

if(SLUICE_PRECOMPILE)
  # What ccache needs to look through them.
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    add_cxx_options(-fpch-preprocess)
  else()
    add_compile_options("SHELL:-Xclang -fno-pch-timestamp")
  endif()
  set(CMAKE_CXX_COMPILE_OPTIONS_PIE -fPIC) # a header precompiled one way cannot be used the other way
endif()
add_precompiled(precompiled_layers HEADERS ${PRECOMPILED_HEADERS})
# For the layers of SLUICE_UNOPTIMIZED: those with much code of which tests run little, so that -O0 compiles them in half of
# the time under a sanitizer and the tests take as long.
if(SLUICE_UNOPTIMIZED)
  add_precompiled(precompiled_unoptimized HEADERS ${PRECOMPILED_HEADERS})
  target_compile_options(precompiled_unoptimized PRIVATE -O0)
endif()
