# libseqpoint_inject.so: the guest in the profiled process. No C++ runtime: linked with the C driver
# and without the compiler's start files; -z defs makes the build fail when something else than libc
# is needed.
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/version.h.in
               ${PROJECT_BINARY_DIR}/injection/version.h @ONLY)

add_library(injection_guest OBJECT
  activity.cc api.cc call_stream.cc callback_ids.cc callbacks.cc clock.cc counters.cc
  cupti_loader.cc features.cc graph_names.cc guest.cc helper.cc identity.cc lifecycle.cc names.cc
  nvtx.cc plan.cc pool.cc system.cc ring/connection.cc ring/writer.cc)
target_include_directories(injection_guest PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_link_libraries(injection_guest PRIVATE seqpoint_cuda_headers)
target_compile_options(injection_guest PRIVATE -O2 -fno-exceptions -fno-rtti
  -fno-threadsafe-statics -fno-asynchronous-unwind-tables -fvisibility=hidden)

add_library(seqpoint_inject SHARED $<TARGET_OBJECTS:injection_guest>)
set_target_properties(seqpoint_inject PROPERTIES LINKER_LANGUAGE C
  LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/inject.version)
# nodelete: CUPTI and NVTX keep pointers into the library.
target_link_options(seqpoint_inject PRIVATE -nostartfiles -Wl,-z,defs -Wl,-z,now -Wl,-z,nodelete
  -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/inject.version)
target_link_libraries(seqpoint_inject PRIVATE ${CMAKE_DL_LIBS})
