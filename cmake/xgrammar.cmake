# xgrammar, which src/grammar is built over: the source archive of its PyPI package, fetched by name and hash, compiled once
# into .deps and linked by every tree of the repository, the sanitizers' too. No sanitizer looks into it.
set(XGRAMMAR_VERSION 0.2.8)
set(XGRAMMAR_SHA256 8305646fd2b319d6c3003f51a1665e54cbbe9cba1fb636bc41d0b46434ccbb80)
set(deps ${CMAKE_SOURCE_DIR}/.deps)
set(recipe ${CMAKE_SOURCE_DIR}/cmake/xgrammar)
# Masks are computed when a matcher first meets their state, those of rules are shared between grammars, strings with bounds
# have no raw control characters, no escape is half of a surrogate pair, and members in any order come once each and all that
# are required. Parsers are made without looking at every rule, and rules are told apart by 64 bits of hash. Repetitions of a
# character are counted instead of written out, masks of states with plain edges are computed without a parser, and a token is
# below another in the tree of tokens only where that is its beginning. Keys of subschemas are no longer than their own
# members, choices of strings become their least automaton at once, passes copy neither rules nor maps of their names, and
# work on a grammar ends by a limit of processor time and pauses now and then (LimitWork). A matcher describes the state that
# its mask depends on (DescribeState), what a long repetition may have beyond its least number comes behind that number, and
# the size of a grammar is measured once.
set(patch ${recipe}/sluice.patch)
set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${patch} ${recipe}/CMakeLists.txt)
file(SHA256 ${recipe}/CMakeLists.txt recipe_hash)
file(SHA256 ${patch} patch_hash)
string(SHA256 recipe_hash "${recipe_hash} ${patch_hash}")
string(SUBSTRING ${recipe_hash} 0 12 recipe_hash)
set(unpacked ${deps}/xgrammar-${recipe_hash})
set(source ${unpacked}/xgrammar-${XGRAMMAR_VERSION})
set(objects ${source}/build-${CMAKE_SYSTEM_PROCESSOR})
set(XGRAMMAR_LIBRARY ${objects}/libxgrammar.a)

# Trees that are configured at the same time wait for the first.
file(MAKE_DIRECTORY ${deps})
file(LOCK ${deps}/xgrammar.lock TIMEOUT 1800)
if(NOT EXISTS ${source}/patched)
  set(archive ${deps}/sources/xgrammar-${XGRAMMAR_VERSION}.tar.gz)
  if(NOT EXISTS ${archive})
    find_package(Python3 REQUIRED COMPONENTS Interpreter)
    execute_process(COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/tools/fetch_source.py
      xgrammar ${XGRAMMAR_VERSION} ${XGRAMMAR_SHA256} ${deps}/sources COMMAND_ERROR_IS_FATAL ANY)
  endif()
  file(SHA256 ${archive} found)
  if(NOT found STREQUAL XGRAMMAR_SHA256)
    message(FATAL_ERROR "${archive}: SHA-256 ${found}, expected ${XGRAMMAR_SHA256}")
  endif()
  file(REMOVE_RECURSE ${unpacked})
  file(ARCHIVE_EXTRACT INPUT ${archive} DESTINATION ${unpacked} PATTERNS "*/cpp/*" "*/include/*" "*/LICENSE" "*/NOTICE"
    "*/3rdparty/picojson/*" "*/3rdparty/dlpack/include/*")
  find_program(PATCH_PROGRAM patch REQUIRED)
  execute_process(COMMAND ${PATCH_PROGRAM} -p1 --silent -i ${patch} WORKING_DIRECTORY ${source} COMMAND_ERROR_IS_FATAL ANY)
  file(TOUCH ${source}/patched)
endif()
if(NOT EXISTS ${XGRAMMAR_LIBRARY})
  message(STATUS "compiling xgrammar ${XGRAMMAR_VERSION}, once for all trees")
  set(parallel)
  if(DEFINED ENV{SLUICE_JOBS})
    set(parallel --parallel $ENV{SLUICE_JOBS})
  endif()
  execute_process(COMMAND ${CMAKE_COMMAND} -G Ninja -S ${recipe} -B ${objects} -DSOURCE=${source}
    OUTPUT_QUIET COMMAND_ERROR_IS_FATAL ANY)
  execute_process(COMMAND ${CMAKE_COMMAND} --build ${objects} ${parallel} COMMAND_ERROR_IS_FATAL ANY)
endif()
file(LOCK ${deps}/xgrammar.lock RELEASE)

add_library(xgrammar STATIC IMPORTED)
set_target_properties(xgrammar PROPERTIES IMPORTED_LOCATION ${XGRAMMAR_LIBRARY}
  INTERFACE_INCLUDE_DIRECTORIES "${source}/include;${source}/3rdparty/dlpack/include")
set(LIBRARIES_grammar xgrammar)
