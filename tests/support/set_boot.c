/* LD_PRELOAD for a program under test: the id of the machine's boot is what a file says.
 *   SEQPOINT_TEST_BOOT_ID=FILE */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char* Instead(const char* path) {
  const char* file = getenv("SEQPOINT_TEST_BOOT_ID");
  return file != NULL && strcmp(path, "/proc/sys/kernel/random/boot_id") == 0 ? file : path;
}

FILE* fopen64(const char* path, const char* mode) {
  FILE* (*real)(const char*, const char*) =
      (FILE * (*)(const char*, const char*)) dlsym(RTLD_NEXT, "fopen64");
  return real(Instead(path), mode);
}

FILE* fopen(const char* path, const char* mode) { return fopen64(path, mode); }
