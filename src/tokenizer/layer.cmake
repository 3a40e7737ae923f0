# A program that times the tokenizers.
add_executable(bench_tokenizer ${CMAKE_SOURCE_DIR}/bench/tokenizer.cpp)
target_link_libraries(bench_tokenizer PRIVATE sluice_tokenizer)
