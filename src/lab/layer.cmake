# How exact the load generator is, and what it costs; built on demand.
add_executable(bench_load EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/load_accuracy.cpp)
target_include_directories(bench_load PRIVATE ${CMAKE_SOURCE_DIR})
target_link_libraries(bench_load PRIVATE sluice_lab)
