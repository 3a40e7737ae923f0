# A program that times the tokenizers.
add_executable(bench_text ${CMAKE_SOURCE_DIR}/bench/text.cpp)
target_link_libraries(bench_text PRIVATE sluice_text)
