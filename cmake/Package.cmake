# Installation: programs in bin, the injected library in lib, and beside it the shared libraries that
# a machine without our packages lacks. Component `tests` adds the training programs, the demo, the
# software GPU and what measures on a GPU. `./dev package` makes one relocatable folder of all.

set(product seqpoint seqpointd seqpoint_inject seqpoint-place)
set(tests seqpoint_workload seqpoint_demo seqpoint_gpu_probe seqpoint_gpu_ranges
          launch_cost_benchmark seqpoint_launcher
          overhead_benchmark overhead_job seqpoint_overhead_tracer)

# What the bundle needs built: `cmake --build ... --target bundle`.
add_custom_target(bundle)
foreach(component product tests)
  foreach(target ${${component}})
    if(NOT TARGET ${target})
      continue()
    endif()
    add_dependencies(bundle ${target})
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "")  # ./dev package sets the bundle's
    install(TARGETS ${target} RUNTIME_DEPENDENCY_SET seqpoint_needs
      RUNTIME DESTINATION bin COMPONENT ${component}
      LIBRARY DESTINATION lib COMPONENT ${component})
  endforeach()
endforeach()
# Never glibc, nor what belongs to the CUDA driver and toolkit of the machine.
install(RUNTIME_DEPENDENCY_SET seqpoint_needs COMPONENT libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|cuda|cudart|cupti)\\.so"
  LIBRARY DESTINATION lib)

# The software GPU lies where the demo looks for it.
foreach(library cuda cudart cupti)
  if(TARGET softgpu_${library})
    add_dependencies(bundle softgpu_${library})
    set_target_properties(softgpu_${library} PROPERTIES INSTALL_RPATH "$ORIGIN")
    install(TARGETS softgpu_${library} LIBRARY DESTINATION softgpu COMPONENT tests NAMELINK_SKIP)
  endif()
endforeach()
install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/softgpu/config DESTINATION softgpu COMPONENT tests)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/tests/gpu DESTINATION tests COMPONENT tests
  USE_SOURCE_PERMISSIONS PATTERN CMakeLists.txt EXCLUDE PATTERN __pycache__ EXCLUDE
  PATTERN "*_test.*" EXCLUDE PATTERN try_package.sh EXCLUDE)
install(FILES ${PROJECT_SOURCE_DIR}/tests/workloads/histograms.cc DESTINATION tests/workloads
  COMPONENT tests)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/tests/gpu/gpu DESTINATION . COMPONENT tests)
install(PROGRAMS ${PROJECT_SOURCE_DIR}/deploy/slurm/task_prolog.sh ${PROJECT_SOURCE_DIR}/deploy/slurm/seqpoint-task
  DESTINATION share/seqpoint/slurm COMPONENT product)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE DESTINATION . COMPONENT product)
