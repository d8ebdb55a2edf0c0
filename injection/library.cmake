# libseqpoint_inject.so: the guest in the profiled process. No C++ runtime: linked with the C driver
# and without the compiler's start files; -z defs makes the build fail when something else than libc
# is needed.
configure_file(${CMAKE_CURRENT_SOURCE_DIR}/version.h.in
               ${PROJECT_BINARY_DIR}/injection/version.h @ONLY)

set(guest_options -O2 -fno-exceptions -fno-rtti -fno-threadsafe-statics
  -fno-asynchronous-unwind-tables -fvisibility=hidden)
# The way of a call through the library: compiled together, so that it is inlined.
set(call_path
  cupti/call_params.cc cupti/callback_ids.cc iterations/call_router.cc iterations/iteration_events.cc
  iterations/measurement_window.cc iterations/plan.cc iterations/step_watch.cc iterations/wait_watch.cc
  process/driver_callbacks.cc)
set(guest_sources ${call_path}
  base/features.cc base/graph_names.cc base/identity.cc base/names.cc base/system.cc
  counters/backend.cc counters/configs.cc counters/counters.cc counters/kernel_ranges.cc counters/pm_sampler.cc
  counters/range_profiler.cc
  cupti/activity.cc cupti/activity_buffers.cc cupti/activity_decoder.cc cupti/call_watch.cc cupti/callbacks.cc
  cupti/captures.cc cupti/clock.cc cupti/contexts.cc cupti/loader.cc cupti/ownership.cc
  cupti/stand_down_requests.cc cupti/switch_token.cc
  iterations/control_mirror.cc iterations/handover.cc iterations/level_switch.cc iterations/measurement_borders.cc
  iterations/op_sets.cc iterations/step_account.cc iterations/watch_switch.cc
  nccl/activation_masks.cc nccl/channel_times.cc nccl/communicator_table.cc
  nccl/communicators.cc nccl/kinds.cc nccl/plugin.cc nccl/plugin_chain.cc
  process/api.cc process/guest.cc process/helper.cc process/nvtx.cc process/other_users.cc
  process/own_memory.cc process/redirect.cc process/stand_down.cc
  ring/connection.cc ring/writer.cc)
foreach(source IN LISTS guest_sources)
  get_filename_component(group ${source} DIRECTORY)
  set_source_files_properties(${source} PROPERTIES UNITY_GROUP ${group})
endforeach()
set_source_files_properties(${call_path} PROPERTIES UNITY_GROUP call_path)
add_library(injection_guest OBJECT ${guest_sources})
set_target_properties(injection_guest PROPERTIES UNITY_BUILD_MODE GROUP)
target_include_directories(injection_guest PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_link_libraries(injection_guest PRIVATE seqpoint_cuda_headers)
target_compile_options(injection_guest PRIVATE ${guest_options})

# A sanitizer's runtime cannot come into somebody's process: then the library is compiled anew
# without, and only the unit tests are checked.
if(SEQPOINT_SANITIZER)
  set(guest_objects ${guest_sources})
  set(no_sanitizer -fno-sanitize=all)
else()
  set(guest_objects $<TARGET_OBJECTS:injection_guest>)
endif()
add_library(seqpoint_inject SHARED nccl/exports.cc process/lifecycle.cc ${guest_objects})
target_include_directories(seqpoint_inject PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
target_compile_options(seqpoint_inject PRIVATE ${guest_options} ${no_sanitizer})
set_target_properties(seqpoint_inject PROPERTIES LINKER_LANGUAGE C
  LINK_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/inject.version)
# nodelete: CUPTI and NVTX keep pointers into the library. Bsymbolic: a copy of the library in the
# same process must mean itself by its own names.
target_link_options(seqpoint_inject PRIVATE ${no_sanitizer} -nostartfiles -Wl,-z,defs -Wl,-z,now
  -Wl,-z,nodelete -Wl,-Bsymbolic -Wl,--version-script=${CMAKE_CURRENT_SOURCE_DIR}/inject.version)
target_link_libraries(seqpoint_inject PRIVATE seqpoint_cuda_headers ${CMAKE_DL_LIBS})

# Unit tests and the benchmark link the same objects.
function(injection_unit_test source)
  get_filename_component(name ${source} NAME_WE)
  seqpoint_test(${name} SRCS ${source} $<TARGET_OBJECTS:injection_guest>
    DEPS ingest seqpoint_cuda_headers ${CMAKE_DL_LIBS} ${ARGN})
endfunction()
if(SEQPOINT_TESTS)
  injection_unit_test(base/identity_test.cc)
  injection_unit_test(base/names_test.cc)
  injection_unit_test(cupti/callback_ids_test.cc)
  injection_unit_test(cupti/clock_test.cc)
  injection_unit_test(cupti/ownership_test.cc)
  injection_unit_test(iterations/call_router_test.cc)
  injection_unit_test(iterations/level_switch_test.cc)
  injection_unit_test(iterations/measurement_window_test.cc)
  injection_unit_test(iterations/plan_test.cc)
  injection_unit_test(iterations/speculative_window_test.cc)
  injection_unit_test(iterations/step_watch_test.cc)
  injection_unit_test(iterations/wait_watch_test.cc)
  injection_unit_test(nccl/activation_masks_test.cc)
  injection_unit_test(nccl/communicators_test.cc SANITIZERS address thread)
  injection_unit_test(nccl/kinds_test.cc)
  injection_unit_test(nccl/open_arrivals_test.cc)
  injection_unit_test(process/own_memory_test.cc)
endif()
if(SEQPOINT_BENCHMARKS)
  seqpoint_benchmark(inject_benchmark SRCS inject_benchmark.cc $<TARGET_OBJECTS:injection_guest>
    DEPS seqpoint_cuda_headers ${CMAKE_DL_LIBS})
  target_include_directories(inject_benchmark PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_compile_definitions(inject_benchmark PRIVATE
    SEQPOINT_INJECT_LIBRARY="$<TARGET_FILE:seqpoint_inject>")
  add_dependencies(inject_benchmark seqpoint_inject)
endif()
