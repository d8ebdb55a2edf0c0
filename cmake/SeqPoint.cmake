# Build settings and the functions every part uses:
#   seqpoint_library(NAME SRCS ... [DEPS ...])   one folder, one static library
#   seqpoint_test(NAME SRCS ... [DEPS ...] [TIMEOUT s] [LABELS ...] [SERIAL] [SANITIZERS address thread])
#                                                TIMEOUT: 60 s; those that may take longer start early;
#                                                SERIAL: needs the cores (SEQPOINT_NEEDS_CORES);
#                                                SANITIZERS: those that `./dev test` runs it with, too
#   seqpoint_python_test(NAME SCRIPT file CASES ... [ARGS ...])
#                                                a test for each case: SCRIPT BUILD_FOLDER ARGS CASE;
#                                                77: skipped
#   seqpoint_benchmark(NAME SRCS ... [DEPS ...])
#   seqpoint_generated_code(NAME)                marks a library of generated code
# Every test case runs in a process of its own, with a timeout; under a sanitizer, whose runtime takes
# long to start, every test program.

set(CMAKE_CXX_STANDARD 20)
set(CMAKE_CXX_STANDARD_REQUIRED ON)
set(CMAKE_CXX_EXTENSIONS OFF)
set(CMAKE_C_STANDARD 11)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
set(CMAKE_EXPORT_COMPILE_COMMANDS ON)
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)

option(SEQPOINT_TESTS "build tests" ON)
option(SEQPOINT_BENCHMARKS "build benchmarks" ON)
option(SEQPOINT_FUZZERS "build libFuzzer targets (needs clang)" OFF)
option(SEQPOINT_WITH_RPC "build the gRPC daemon and client" ON)
set(SEQPOINT_SANITIZER "" CACHE STRING "address, thread or empty")

# Half of a compiler's time goes into headers: the files of a target are compiled in groups, so that
# they read them once. Names in unnamed namespaces are unique within a target for it.
set(CMAKE_UNITY_BUILD ON CACHE BOOL "compile the files of a target in groups")
set(CMAKE_UNITY_BUILD_BATCH_SIZE 12)
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-Wno-subobject-linkage>)  # takes a group for a header
  # The compiler collects garbage from 1 GB on, not from 128 MB: 5 to 10 % of its time less.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:--param=ggc-min-heapsize=1000000>)
endif()

if(CMAKE_CXX_COMPILER_ID STREQUAL "Clang")
  add_compile_options("SHELL:-Xclang -fno-pch-timestamp")  # else ccache never has what uses one
endif()

# -pthread: some packages ask for it, and one precompiled header is for all.
add_compile_options(-Wall -Wextra -Wno-unused-parameter -Wno-missing-field-initializers -pthread)
# Objects name files relative to the project: a clone in another folder finds its own in the
# compiler's cache.
add_compile_options(-ffile-prefix-map=${PROJECT_SOURCE_DIR}/=)
# Function names and lines, for stack traces, without the variables: 20 to 40 % of the time that the
# compiler takes.
add_compile_options($<$<CONFIG:RelWithDebInfo>:-g1>)
if(SEQPOINT_SANITIZER STREQUAL "address")
  # AddressSanitizer sees what the last three would: a fifth of the compiler's time less.
  add_compile_options(-fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
    -fno-sanitize=null,object-size,vptr)
  add_link_options(-fsanitize=address,undefined)
elseif(SEQPOINT_SANITIZER STREQUAL "thread")
  # gcc warns that it does not model atomic_thread_fence; the code does not rely on fences alone.
  # It expands small copies in place without telling ThreadSanitizer, too; a call it sees.
  add_compile_options(-fsanitize=thread -fno-omit-frame-pointer -Wno-error=tsan -fno-builtin-memcpy)
  # Headers of Protocol Buffers and Abseil lay out their classes otherwise under ThreadSanitizer; the
  # distribution's libraries are compiled without it. The standard library's may know.
  add_compile_options($<$<COMPILE_LANGUAGE:CXX>:-U__SANITIZE_THREAD__> -D_GLIBCXX_TSAN=1)
  add_link_options(-fsanitize=thread)
endif()

find_package(Threads REQUIRED)
find_package(absl REQUIRED)
if(SEQPOINT_TESTS)
  find_package(GTest REQUIRED)
  include(GoogleTest)
  # Debian's Python has Debian's PyTorch; another one on the PATH often has none.
  find_program(SEQPOINT_TEST_PYTHON python3 HINTS /usr/bin NO_DEFAULT_PATH)
  find_program(SEQPOINT_TEST_PYTHON python3)
endif()
if(SEQPOINT_BENCHMARKS)
  find_package(benchmark REQUIRED)
endif()

# The CUDA toolkit gives headers (cuda.h, cupti.h, nvtx3) and nvcc. Nothing links a CUDA library but
# the module of seqpoint-sgd --gpu.
find_path(SEQPOINT_CUDA_INCLUDE cupti_range_profiler.h
  HINTS $ENV{CUDA_HOME}/include $ENV{CUDA_HOME}/extras/CUPTI/include
        /usr/local/cuda/include /usr/local/cuda/extras/CUPTI/include)
find_program(SEQPOINT_NVCC nvcc HINTS $ENV{CUDA_HOME}/bin /usr/local/cuda/bin)
if(SEQPOINT_CUDA_INCLUDE)
  set(SEQPOINT_WITH_CUDA ON)
else()
  set(SEQPOINT_WITH_CUDA OFF)
  message(STATUS "CUPTI headers not found: the injected library, the software GPU and the workloads are left out; install the CUDA Toolkit 13 (cuda-toolkit-13-0) or set CUDA_HOME")
endif()
if(SEQPOINT_WITH_CUDA AND NOT SEQPOINT_NVCC)
  message(STATUS "nvcc not found: the workloads (and the demo) are left out; install the CUDA Toolkit 13 or set CUDA_HOME")
endif()
add_library(seqpoint_cuda_headers INTERFACE)
if(SEQPOINT_WITH_CUDA)
  target_include_directories(seqpoint_cuda_headers SYSTEM INTERFACE ${SEQPOINT_CUDA_INCLUDE})
endif()

# What must exist before a tool can read every source file.
add_custom_target(seqpoint_generated)

# For what runs once or waits for people: a third of the compiler's time.
set(SEQPOINT_LIGHT_OPTIMISATION $<$<CONFIG:RelWithDebInfo>:-O$<IF:$<BOOL:${SEQPOINT_SANITIZER}>,0,g>>)

# Nobody here mends the code that protoc writes: no warnings, no sanitizer. Light optimisation keeps
# its build short.
function(seqpoint_generated_code target)
  add_dependencies(seqpoint_generated ${target})
  target_compile_options(${target} PRIVATE -w -O1)
  if(SEQPOINT_SANITIZER)
    target_compile_options(${target} PRIVATE -fno-sanitize=all)
  endif()
endfunction()

# Headers that nearly every file includes take 2 of the 6 s that a compiler needs for one: they are
# parsed once for libraries and once for tests. The injected library has no Abseil and no part in it.
# (CLI11 and gRPC among them made every file that takes them slower, by 2 to 6 s.)
set(SEQPOINT_COMMON_HEADERS <algorithm> <chrono> <cmath> <filesystem> <fstream> <functional> <map>
  <memory> <optional> <set> <string> <thread> <utility> <vector> <absl/container/flat_hash_map.h>
  <absl/status/statusor.h> <absl/strings/str_cat.h> <absl/strings/str_format.h>
  <absl/strings/str_join.h> <absl/strings/str_split.h>)
set(common_packages absl::flat_hash_map absl::statusor absl::strings absl::str_format)
file(WRITE ${CMAKE_BINARY_DIR}/precompiled.cc "")
add_library(seqpoint_library_headers STATIC ${CMAKE_BINARY_DIR}/precompiled.cc)
target_link_libraries(seqpoint_library_headers PRIVATE ${common_packages})
target_precompile_headers(seqpoint_library_headers PRIVATE ${SEQPOINT_COMMON_HEADERS})
if(SEQPOINT_TESTS)
  file(WRITE ${CMAKE_BINARY_DIR}/precompiled_test.cc "int main() {}")
  add_executable(seqpoint_test_headers ${CMAKE_BINARY_DIR}/precompiled_test.cc)
  target_compile_options(seqpoint_test_headers PRIVATE ${SEQPOINT_LIGHT_OPTIMISATION})
  target_link_libraries(seqpoint_test_headers PRIVATE ${common_packages} GTest::gmock GTest::gtest
    Threads::Threads)
  target_precompile_headers(seqpoint_test_headers PRIVATE ${SEQPOINT_COMMON_HEADERS}
    <gmock/gmock.h> <gtest/gtest.h>)
endif()

# The precompiled headers of a folder's libraries.
set(SEQPOINT_HEADERS seqpoint_library_headers)

function(seqpoint_library name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  add_library(${name} STATIC ${ARG_SRCS})
  if(SEQPOINT_HEADERS)
    target_precompile_headers(${name} REUSE_FROM ${SEQPOINT_HEADERS})
  endif()
  target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_link_libraries(${name} PUBLIC ${ARG_DEPS} Threads::Threads)
endfunction()

# Properties of a test that needs the cores: few other tests run meanwhile, and no other of these.
# COST: they start first, for at the end they would run alone.
set(SEQPOINT_NEEDS_CORES PROCESSORS 3 RESOURCE_LOCK cores COST 200)

# The tests that `./dev test` runs under this build's sanitizer.
add_custom_target(sanitized_tests)

function(seqpoint_test name)
  cmake_parse_arguments(ARG "SERIAL" "TIMEOUT" "SRCS;DEPS;LABELS;SANITIZERS" ${ARGN})
  if(NOT SEQPOINT_TESTS)
    return()
  endif()
  if(SEQPOINT_SANITIZER IN_LIST ARG_SANITIZERS)
    list(APPEND ARG_LABELS sanitized)
    add_dependencies(sanitized_tests ${name})
  endif()
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 60)
  endif()
  add_executable(${name} ${ARG_SRCS})
  # A test's own code is compiled once and run once; the code under test keeps its optimisation.
  target_compile_options(${name} PRIVATE ${SEQPOINT_LIGHT_OPTIMISATION})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} GTest::gmock GTest::gtest GTest::gtest_main Threads::Threads)
  target_precompile_headers(${name} REUSE_FROM seqpoint_test_headers)
  if(SEQPOINT_SANITIZER STREQUAL "thread")
    target_link_libraries(${name} PRIVATE abseil_locks_for_tsan)
  endif()
  set(properties TIMEOUT ${ARG_TIMEOUT})
  if(ARG_TIMEOUT GREATER 60)
    list(APPEND properties COST 100)
  endif()
  if(ARG_LABELS)
    list(APPEND properties LABELS "${ARG_LABELS}")
  endif()
  if(ARG_SERIAL)
    list(APPEND properties ${SEQPOINT_NEEDS_CORES})
  endif()
  if(SEQPOINT_SANITIZER)
    add_test(NAME ${name} COMMAND ${name})
    set_tests_properties(${name} PROPERTIES ${properties} TIMEOUT 600)
  else()
    gtest_discover_tests(${name} DISCOVERY_MODE PRE_TEST TEST_PREFIX ${name}.
      PROPERTIES ${properties})
  endif()
endfunction()

function(seqpoint_python_test name)
  cmake_parse_arguments(ARG "" "SCRIPT" "CASES;ARGS" ${ARGN})
  if(NOT SEQPOINT_TESTS OR SEQPOINT_SANITIZER OR NOT SEQPOINT_TEST_PYTHON)
    return()
  endif()
  foreach(case ${ARG_CASES})
    add_test(NAME ${name}.${case} COMMAND ${SEQPOINT_TEST_PYTHON}
      ${CMAKE_CURRENT_SOURCE_DIR}/${ARG_SCRIPT} ${CMAKE_BINARY_DIR} ${ARG_ARGS} ${case})
    set_tests_properties(${name}.${case} PROPERTIES TIMEOUT 120 SKIP_RETURN_CODE 77
      ENVIRONMENT "PYTHONDONTWRITEBYTECODE=1")
  endforeach()
endfunction()

# Built by `./dev bench` and `--target benchmarks`; the tests need none.
add_custom_target(benchmarks)

function(seqpoint_benchmark name)
  cmake_parse_arguments(ARG "" "" "SRCS;DEPS" ${ARGN})
  if(NOT SEQPOINT_BENCHMARKS)
    return()
  endif()
  add_executable(${name} EXCLUDE_FROM_ALL ${ARG_SRCS})
  add_dependencies(benchmarks ${name})
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_BINARY_DIR})
  target_link_libraries(${name} PRIVATE ${ARG_DEPS} benchmark::benchmark Threads::Threads)
endfunction()
