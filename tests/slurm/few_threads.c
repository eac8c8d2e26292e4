// SPDX-License-Identifier: GPL-2.0-or-later
// Preloaded into slurmctld: C++ threads can be had only as many times as the file $FEW_THREADS says, while it is there. Slurm's own
// threads are C, and are started as ever.
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int is_refused(void) {
  static int started;
  const char* const name = getenv("FEW_THREADS");
  FILE* const file = name != NULL ? fopen(name, "re") : NULL;
  int most;
  if (file == NULL) return 0;
  if (fscanf(file, "%d", &most) != 1) most = 0;
  fclose(file);
  return __atomic_fetch_add(&started, 1, __ATOMIC_SEQ_CST) >= most;
}

int pthread_create(pthread_t* thread, const pthread_attr_t* attributes, void* (*body)(void*),
                   void* argument) {
  int (*const real)(pthread_t*, const pthread_attr_t*, void* (*)(void*), void*) =
      dlsym(RTLD_NEXT, "pthread_create");
  Dl_info caller;
  if (dladdr(__builtin_return_address(0), &caller) != 0 && caller.dli_fname != NULL &&
      strstr(caller.dli_fname, "libstdc++") != NULL && is_refused())
    return EAGAIN;
  return real(thread, attributes, body, argument);
}
