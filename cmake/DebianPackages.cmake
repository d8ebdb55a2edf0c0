# Debian packages: `./dev package --deb`. A file belongs to the component of its package. Libraries of
# others come from the distribution, as the fields Depends that dpkg-shlibdeps writes say.

set(packages)
set(SEQPOINT_MAINTAINER "SeqPoint Profiler <seqpoint@packages.invalid>" CACHE STRING
  "field Maintainer of the Debian packages")
string(TIMESTAMP SEQPOINT_DEBIAN_DATE "%a, %d %b %Y %H:%M:%S +0000" UTC)
# seqpoint_debian_package(NAME SUMMARY text TEXT text [DEPENDS list] [TARGETS ...])
function(seqpoint_debian_package name)
  cmake_parse_arguments(ARG "" "SUMMARY;TEXT;DEPENDS" "TARGETS" ${ARGN})
  foreach(target ${ARG_TARGETS})
    add_dependencies(debian_packages_need ${target})
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "")
    # In a folder of our own: nobody links with the injected library.
    install(TARGETS ${target} COMPONENT ${name} EXCLUDE_FROM_ALL
      RUNTIME DESTINATION bin LIBRARY DESTINATION lib/seqpoint)
  endforeach()
  set(made ${CMAKE_CURRENT_BINARY_DIR}/debian/${name})
  configure_file(${PROJECT_SOURCE_DIR}/deploy/debian/changelog.in ${made}/changelog @ONLY)
  execute_process(COMMAND gzip -9nf ${made}/changelog COMMAND_ERROR_IS_FATAL ANY)
  install(FILES ${made}/changelog.gz ${PROJECT_SOURCE_DIR}/deploy/debian/copyright
    DESTINATION share/doc/${name} COMPONENT ${name} EXCLUDE_FROM_ALL)
  string(TOUPPER ${name} upper)
  set(CPACK_DEBIAN_${upper}_PACKAGE_NAME ${name} PARENT_SCOPE)
  set(CPACK_COMPONENT_${upper}_DESCRIPTION "${ARG_SUMMARY}\n${ARG_TEXT}" PARENT_SCOPE)
  set(CPACK_DEBIAN_${upper}_PACKAGE_DEPENDS "${ARG_DEPENDS}" PARENT_SCOPE)
  set(packages ${packages} ${name} PARENT_SCOPE)
endfunction()

if(NOT TARGET seqpoint OR NOT TARGET seqpointd OR NOT TARGET seqpoint_inject)
  message(STATUS "the Debian packages are left out: they need the daemon, the client and the injected library")
  return()
endif()
add_custom_target(debian_packages_need)

seqpoint_debian_package(seqpointd
  SUMMARY "profiling service for GPU training: daemon of a node, and hub"
  TEXT [[
seqpointd reads what the library of the package seqpoint records in
training processes, keeps it, and answers questions about the cost of the
whole run. As a hub it makes one job of what the daemons of several
machines see.]]
  DEPENDS "adduser" TARGETS seqpointd)
set(SEQPOINT_DEBIAN ${PROJECT_SOURCE_DIR}/deploy/debian)
install(FILES ${PROJECT_SOURCE_DIR}/deploy/systemd/seqpointd.service
  ${PROJECT_SOURCE_DIR}/deploy/systemd/seqpointd-hub.service
  DESTINATION /lib/systemd/system COMPONENT seqpointd EXCLUDE_FROM_ALL)
install(FILES ${SEQPOINT_DEBIAN}/seqpointd.toml ${SEQPOINT_DEBIAN}/hub.toml
  DESTINATION /etc/seqpoint COMPONENT seqpointd EXCLUDE_FROM_ALL)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/docs/ DESTINATION share/doc/seqpointd COMPONENT seqpointd
  EXCLUDE_FROM_ALL)
set(CPACK_DEBIAN_SEQPOINTD_PACKAGE_SECTION net)
set(CPACK_DEBIAN_SEQPOINTD_PACKAGE_CONTROL_EXTRA ${SEQPOINT_DEBIAN}/conffiles
  ${SEQPOINT_DEBIAN}/postinst ${SEQPOINT_DEBIAN}/prerm ${SEQPOINT_DEBIAN}/postrm)
set(CPACK_DEBIAN_SEQPOINTD_PACKAGE_SUGGESTS "seqpoint, postgresql, prometheus")

set(planners)
if(TARGET seqpoint-place)
  set(planners seqpoint-place)
endif()
# `seqpoint run` starts a private daemon where none runs: it needs the same version of it.
seqpoint_debian_package(seqpoint
  SUMMARY "tells what a whole GPU training run costs, and why"
  TEXT [[
SeqPoint Profiler watches an unmodified CUDA or PyTorch program whose
iterations differ because their sequence lengths do. It measures the few
iterations that represent all others, and answers with an interval on
every figure. This package has the command line, the library that goes
into the training, and the PyTorch adapter.]]
  DEPENDS "seqpointd (= ${PROJECT_VERSION})"
  TARGETS seqpoint seqpoint_inject ${planners})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/injection/python/ DESTINATION share/seqpoint/python
  COMPONENT seqpoint EXCLUDE_FROM_ALL
  FILES_MATCHING PATTERN "*.py" PATTERN "*.pth" PATTERN "*_test.py" EXCLUDE PATTERN "__pycache__" EXCLUDE)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/deploy/slurm/task_prolog.sh ${PROJECT_SOURCE_DIR}/deploy/slurm/seqpoint-task
  DESTINATION share/seqpoint/slurm COMPONENT seqpoint EXCLUDE_FROM_ALL)
install(FILES ${PROJECT_SOURCE_DIR}/injection/seqpoint.h DESTINATION include COMPONENT seqpoint
  EXCLUDE_FROM_ALL)
set(CPACK_DEBIAN_SEQPOINT_PACKAGE_SUGGESTS "python3, seqpoint-partition")

if(TARGET seqpoint-partition AND TARGET seqpoint-sgd)  # MPI is too much for everybody
  seqpoint_debian_package(seqpoint-partition
    SUMMARY "chooses which rank owns which rows of a sparse network"
    TEXT [[
seqpoint-partition plans the rows of a sparse network over MPI ranks, and
seqpoint-sgd executes the plan. The package seqpoint starts it as "seqpoint
partition".]]
    TARGETS seqpoint-partition seqpoint-sgd)
endif()

set(CPACK_GENERATOR DEB)
set(CPACK_COMPONENTS_ALL ${packages})
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_PACKAGE_NAME seqpoint)
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DIRECTORY ${CMAKE_BINARY_DIR}/debian)
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_VERBATIM_VARIABLES ON)
set(CPACK_INSTALL_DEFAULT_DIRECTORY_PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE GROUP_READ
  GROUP_EXECUTE WORLD_READ WORLD_EXECUTE)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
set(CPACK_DEBIAN_PACKAGE_SECTION devel)
set(CPACK_DEBIAN_PACKAGE_PRIORITY optional)
set(CPACK_DEBIAN_PACKAGE_MAINTAINER ${SEQPOINT_MAINTAINER})
include(CPack)
