# libsluice_mpi.so, beside the program: the only thing that is linked with Open MPI. Without Open MPI's headers there is
# none, and the program says so where several ranks are asked for.
target_link_libraries(sluice_dist PUBLIC ${CMAKE_DL_LIBS})
find_path(MPI_HEADERS mpi.h PATH_SUFFIXES openmpi openmpi/include
  PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/openmpi/include)
find_library(MPI_LIBRARY mpi)
if(MPI_HEADERS AND MPI_LIBRARY)
  add_library(sluice_mpi MODULE ${CMAKE_SOURCE_DIR}/src/dist/mpi/plugin.cpp)
  target_include_directories(sluice_mpi PRIVATE ${CMAKE_SOURCE_DIR}/src)
  target_include_directories(sluice_mpi SYSTEM PRIVATE ${MPI_HEADERS})
  target_compile_definitions(sluice_mpi PRIVATE OMPI_SKIP_MPICXX)
  target_link_libraries(sluice_mpi PRIVATE ${MPI_LIBRARY})
  set_target_properties(sluice_mpi PROPERTIES CXX_VISIBILITY_PRESET hidden UNITY_BUILD OFF)
  add_dependencies(sluice_dist sluice_mpi)
endif()
