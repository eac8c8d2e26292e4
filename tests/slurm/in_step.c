/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * Preloaded into examples/regression by tests of live mode: the pause of each step lasts until all ranks of the generation have
 * come to it, as a collective would, so that no rank is a step ahead. OUT/steps.GENERATION has how many steps each rank has
 * done (64 bits a rank). Once the file OUT/fast is there nobody pauses or waits any more. A program that stays has other
 * ranks beside it after each swell_adopt().
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

typedef struct swell_session swell_session_t; /* of swell.h */

static const char *out;
static const swell_session_t *session;
static _Atomic uint64_t *steps;
static int rank, ranks;

static int number(const char *variable) {
  const char *(*its)(const swell_session_t *, const char *) = dlsym(RTLD_DEFAULT, "swell_variable");
  const char *text = its != NULL && session != NULL ? its(session, variable) : getenv(variable);
  return text != NULL ? atoi(text) : 0;
}

static void begin(void) {
  char path[4096];
  out = getenv("OUT");
  rank = number("RANK");
  ranks = number("WORLD_SIZE");
  snprintf(path, sizeof path, "%s/steps.%d", out, number("SWELL_GENERATION"));
  const int fd = open(path, O_RDWR | O_CREAT, 0666);
  const size_t bytes = (size_t)ranks * sizeof *steps;
  if (fd < 0 || ftruncate(fd, (off_t)bytes) != 0) abort();
  steps = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (steps == MAP_FAILED) abort();
  close(fd);
}

static int is_fast(void) {
  char path[4096];
  snprintf(path, sizeof path, "%s/fast", out);
  return access(path, F_OK) == 0;
}

int swell_adopt(swell_session_t *own, void *generation) {
  int (*adopt)(swell_session_t *, void *) = dlsym(RTLD_NEXT, "swell_adopt");
  const int code = adopt(own, generation);
  if (code == 0) session = own, begin();
  return code;
}

int nanosleep(const struct timespec *pause, struct timespec *left) {
  if (steps == NULL) begin();
  const uint64_t own = ++steps[rank];
  if (is_fast()) return 0;
  clock_nanosleep(CLOCK_MONOTONIC, 0, pause, left);
  for (int other = 0; other < ranks; ++other)
    while (steps[other] < own && !is_fast())
      clock_nanosleep(CLOCK_MONOTONIC, 0, &(struct timespec){0, 500000}, NULL);
  return 0;
}
