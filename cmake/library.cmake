# libsluice: the objects that the program is linked from, as one shared library that shows the C interface and
# sluice::llm::Session alone; and what `cmake --install` puts beside it: the program, headers, a CMake package, a
# pkg-config file.
if(SLUICE_KERNELS_ONLY OR SLUICE_SANITIZE)
  return()
endif()
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set(symbols ${CMAKE_SOURCE_DIR}/cmake/libsluice.map)
add_library(sluice_library SHARED $<TARGET_OBJECTS:sluice_llm>)
target_link_libraries(sluice_library PRIVATE sluice_llm)
target_link_options(sluice_library PRIVATE -Wl,--version-script=${symbols} -Wl,-Bsymbolic -Wl,--no-undefined)
set_target_properties(sluice_library PROPERTIES OUTPUT_NAME sluice EXPORT_NAME sluice LINKER_LANGUAGE CXX
  LINK_DEPENDS ${symbols} VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR}
  INSTALL_RPATH_USE_LINK_PATH ON)

# Headers of the source tree include each other from src/; installed they lie in a folder of their own.
foreach(header llm/session.h base/check.h base/ids.h base/result.h)
  set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${CMAKE_SOURCE_DIR}/src/${header})
  file(READ ${CMAKE_SOURCE_DIR}/src/${header} text)
  string(REPLACE "#include \"" "#include \"sluice/" text "${text}")
  file(CONFIGURE OUTPUT ${CMAKE_BINARY_DIR}/installed/sluice/${header} CONTENT "${text}" @ONLY)
endforeach()

set(package ${CMAKE_INSTALL_LIBDIR}/cmake/sluice)
configure_package_config_file(cmake/sluice-config.cmake.in installed/sluice-config.cmake INSTALL_DESTINATION ${package}
  PATH_VARS CMAKE_INSTALL_INCLUDEDIR CMAKE_INSTALL_LIBDIR)
write_basic_package_version_file(${CMAKE_BINARY_DIR}/installed/sluice-config-version.cmake COMPATIBILITY SameMinorVersion)
file(RELATIVE_PATH PREFIX_FROM_PKGCONFIG /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(cmake/sluice.pc.in installed/sluice.pc @ONLY)

install(TARGETS sluice sluice_library)
install(FILES include/sluice.h TYPE INCLUDE)
install(DIRECTORY ${CMAKE_BINARY_DIR}/installed/sluice TYPE INCLUDE)
install(FILES ${CMAKE_BINARY_DIR}/installed/sluice-config.cmake ${CMAKE_BINARY_DIR}/installed/sluice-config-version.cmake
  DESTINATION ${package})
install(FILES ${CMAKE_BINARY_DIR}/installed/sluice.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
