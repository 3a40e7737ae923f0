# build_info() is a generated file of its own, looked at in each build and rewritten only where its text changes: a commit
# compiles one small file and links again. Cross builds of the kernels do without it.
if(NOT SLUICE_KERNELS_ONLY)
  set(build_info ${CMAKE_BINARY_DIR}/generated/build_info.cpp)
  add_custom_target(sluice_build_info
    COMMAND ${CMAKE_COMMAND} -DSOURCE=${CMAKE_SOURCE_DIR} -DVERSION=${PROJECT_VERSION} -DOUTPUT=${build_info}
      -P ${CMAKE_SOURCE_DIR}/cmake/build_info.cmake
    BYPRODUCTS ${build_info}
    COMMENT "")
  target_sources(sluice_base PRIVATE ${build_info})
  add_dependencies(sluice_base sluice_build_info)
endif()
