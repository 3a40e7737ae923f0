target_include_directories(sluice_llm PUBLIC ${CMAKE_SOURCE_DIR}/include)

# Programs that time the whole engine; built on demand.
add_executable(bench_engine EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/engine_load.cpp)
target_link_libraries(bench_engine PRIVATE sluice_llm)
add_executable(random_model EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/random_model.cpp)
add_executable(random_gguf EXCLUDE_FROM_ALL ${CMAKE_SOURCE_DIR}/bench/random_gguf.cpp)
foreach(program random_model random_gguf)
  target_link_libraries(${program} PRIVATE fmt::fmt Threads::Threads)
endforeach()
