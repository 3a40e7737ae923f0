# Libraries from the system, and which directory of src/ links which.
find_package(Threads REQUIRED)
if(SLUICE_KERNELS_ONLY)
  # A cross build has no libraries of the other architecture: fmt is used as headers, copied apart from the
  # headers of this machine.
  set(SLUICE_FMT_HEADERS /usr/include/fmt CACHE PATH "headers of fmt, for a build of the kernels alone")
  file(COPY ${SLUICE_FMT_HEADERS} DESTINATION ${CMAKE_BINARY_DIR}/include)
  add_library(fmt_headers INTERFACE)
  target_include_directories(fmt_headers SYSTEM INTERFACE ${CMAKE_BINARY_DIR}/include)
  target_compile_definitions(fmt_headers INTERFACE FMT_HEADER_ONLY)
  set(LIBRARIES_base fmt_headers Threads::Threads)
  set(SLUICE_BASE_EXCLUDE json.cpp published_json.cpp json_library.cpp log.cpp options.cpp)
  return()
endif()
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_package(Boost 1.81 REQUIRED COMPONENTS container json) # of JSON the headers: base/json_library.cpp compiles it
find_package(CLI11 REQUIRED)
find_path(PCRE2_INCLUDE pcre2.h REQUIRED)
find_library(PCRE2_LIBRARY pcre2-8 REQUIRED)
add_library(pcre2 INTERFACE)
target_include_directories(pcre2 INTERFACE ${PCRE2_INCLUDE})
target_link_libraries(pcre2 INTERFACE ${PCRE2_LIBRARY})
target_compile_definitions(pcre2 INTERFACE PCRE2_CODE_UNIT_WIDTH=8)
find_package(JPEG REQUIRED)
find_package(PNG REQUIRED)
find_path(WEBP_INCLUDE webp/decode.h REQUIRED)
find_library(WEBP_LIBRARY webp REQUIRED)
add_library(webp INTERFACE)
target_include_directories(webp INTERFACE ${WEBP_INCLUDE})
target_link_libraries(webp INTERFACE ${WEBP_LIBRARY})

find_package(CURL 7.85) # without it pictures are not fetched by address
# The program's allocator. That of glibc has threads share arenas, and whoever frees memory of another one takes its mutex:
# where a thread of low priority holds it, steps and connections wait until the cores are idle. mimalloc takes none.
find_library(MIMALLOC_LIBRARY mimalloc)

set(LIBRARIES_base fmt::fmt spdlog::spdlog Boost::headers Boost::container Threads::Threads)
set(LIBRARIES_unicode pcre2)
set(LIBRARIES_image JPEG::JPEG PNG::PNG webp)
set(LIBRARIES_cli CLI11::CLI11)
if(CURL_FOUND)
  set(LIBRARIES_server CURL::libcurl)
endif()

set(SLUICE_WITHOUT_dist "/dist/mpi/plugin.cpp$") # a library of its own: src/dist/layer.cmake
