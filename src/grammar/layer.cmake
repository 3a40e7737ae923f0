# Costs of masks; not part of the program.
add_executable(bench_grammar EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/grammar.cpp)
target_link_libraries(bench_grammar PRIVATE sluice_grammar)
