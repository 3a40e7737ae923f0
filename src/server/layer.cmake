# The page is part of the program: the files of web/ become a generated source.
set(embedded ${CMAKE_BINARY_DIR}/generated/embedded_files.cpp)
file(GLOB web_files CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/web/*.html ${CMAKE_SOURCE_DIR}/web/*.js
  ${CMAKE_SOURCE_DIR}/web/*.css ${CMAKE_SOURCE_DIR}/web/*.svg)
add_custom_command(OUTPUT ${embedded}
  COMMAND ${CMAKE_COMMAND} -DFOLDER=${CMAKE_SOURCE_DIR}/web -DOUTPUT=${embedded}
    -P ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  DEPENDS ${web_files} ${CMAKE_SOURCE_DIR}/cmake/embed.cmake
  COMMENT "")
target_sources(sluice_server PRIVATE ${embedded})
set_source_files_properties(${CMAKE_SOURCE_DIR}/src/server/fetch/url_fetcher.cpp PROPERTIES
  COMPILE_DEFINITIONS SLUICE_CURL=$<BOOL:${CURL_FOUND}> SKIP_UNITY_BUILD_INCLUSION ON)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  # GCC 12 takes the frames of coroutines for something that new made, and every source of a batch for a header.
  target_compile_options(sluice_server PRIVATE -Wno-mismatched-new-delete -Wno-subobject-linkage)
endif()
