if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 takes the frames of coroutines for something that new made, and every source of a batch for a header.
  target_compile_options(sluice_route PRIVATE -Wno-mismatched-new-delete -Wno-subobject-linkage)
endif()
