# Installation: programs in bin, the injected library in lib, and beside it the shared libraries that
# a machine without our packages lacks. Component `tests` adds the training programs, the demo and
# the benchmarks. `./dev package` makes one relocatable folder of both.

set(product seqpoint seqpointd seqpoint_inject)
set(tests seqpoint_workload seqpoint_demo seqpoint_soak seqpoint_launcher inject_benchmark
          launch_cost_benchmark path_benchmark ring_benchmark main_job_test)

foreach(component product tests)
  foreach(target ${${component}})
    if(NOT TARGET ${target})
      continue()
    endif()
    set_target_properties(${target} PROPERTIES INSTALL_RPATH "$ORIGIN/../lib")
    install(TARGETS ${target} RUNTIME_DEPENDENCY_SET seqpoint_needs
      RUNTIME DESTINATION bin COMPONENT ${component}
      LIBRARY DESTINATION lib COMPONENT ${component})
  endforeach()
endforeach()
# Never those of the C and C++ runtime, which every machine has, nor those of the driver.
install(RUNTIME_DEPENDENCY_SET seqpoint_needs COMPONENT libraries
  PRE_EXCLUDE_REGEXES "^ld-linux" "^lib(c|m|dl|rt|pthread|resolv|stdc\\+\\+|gcc_s|cuda|cupti)\\.so"
  LIBRARY DESTINATION lib)
