# The table of families: every src/models/arch/NAME.cpp defines `const Architecture NAME` in namespace arch. Each has a
# miniature with reference outputs, tests/golden/data/NAME, whose config names an architecture of that file.
include(goldens)
set(declarations "")
set(entries "")
file(GLOB arch_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/models/arch/*.cpp)
foreach(file IN LISTS arch_files)
  get_filename_component(family ${file} NAME_WE)
  string(APPEND declarations "namespace arch { extern const Architecture ${family}; }\n")
  string(APPEND entries "&arch::${family}, ")
  check_golden(${family} ${file})
endforeach()
# Families are many and short: every tree compiles them in batches.
set_target_properties(sluice_models PROPERTIES UNITY_BUILD ON)
if(NOT CMAKE_UNITY_BUILD)
  set(unbatched ${sources})
  list(REMOVE_ITEM unbatched ${arch_files})
  set_source_files_properties(${unbatched} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
endif()
set(table ${CMAKE_BINARY_DIR}/generated/models_architectures.cpp)
file(GENERATE OUTPUT ${table} CONTENT "#include \"models/family.h\"\n
namespace sluice::models {
${declarations}
std::span<const Architecture* const> architectures() {
  static const Architecture* const all[] = {${entries}};
  return all;
}
}  // namespace sluice::models
")
target_sources(sluice_models PRIVATE ${table})

# How long sums over ranks take: mpirun -n 2 build/release/bench_sums
add_executable(bench_sums EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/rank_sums.cpp)
target_link_libraries(bench_sums PRIVATE sluice_models sluice_kernels_cpu)
