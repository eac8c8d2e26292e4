/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * One rank of a job that computes nothing: each step takes as long as a model's would on as many GPUs. For comparisons of whole
 * workloads on a machine that has none of the GPUs.
 *
 * usage: paced STEPS START_S STEP_S...
 * START_S: seconds that a new process needs before it can train. STEP_S: "4=0.2": seconds of a step of 4 ranks; other numbers of
 * ranks take as long as the nearest smaller one. OUT=FOLDER: rank 0 keeps the number of steps done there at USR1, and new programs
 * go on from it; with SWELL_RUNTIME the state is libswell's, and moves live.
 */
#include <errno.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "runtime/swell.h"

static volatile sig_atomic_t asked_to_leave = 0;
static void note(int number) {
  (void)number;
  asked_to_leave = 1;
}

static int die(swell_session_t *session, const char *what, int code) {
  fprintf(stderr, "paced: %s: %s (%s)\n", what, swell_last_error(session), strerror(-code));
  swell_close(session);
  return 1;
}

/* Sleeps for so long from `since` on, which it advances: delays of one step are made up for in the next. */
static void pace(struct timespec *since, double seconds) {
  const long long ns = since->tv_nsec + (long long)(seconds * 1e9);
  since->tv_sec += ns / 1000000000, since->tv_nsec = ns % 1000000000;
  while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, since, NULL) == EINTR && !asked_to_leave) continue;
}

static double seconds_of_a_step(int world, int count, char **table) {
  int nearest = 0, ranks;
  double found = 0, seconds;
  for (int i = 0; i < count; ++i)
    if (sscanf(table[i], "%d=%lf", &ranks, &seconds) == 2 && ranks <= world && ranks > nearest) nearest = ranks, found = seconds;
  return found;
}

static int number_of(const char *first, const char *second, int otherwise) {
  const char *text = getenv(first) != NULL ? getenv(first) : getenv(second);
  return text != NULL ? atoi(text) : otherwise;
}

int main(int argc, char **argv) {
  signal(SIGUSR1, note);
  if (argc < 4) {
    fprintf(stderr, "usage: paced STEPS START_S RANKS=STEP_S...\n");
    return 2;
  }
  const uint64_t steps = strtoull(argv[1], NULL, 10);
  const int rank = number_of("RANK", "SLURM_PROCID", 0), world = number_of("WORLD_SIZE", "SLURM_NTASKS", 1);
  const double step_s = seconds_of_a_step(world, argc - 3, argv + 3);
  if (step_s <= 0) {
    fprintf(stderr, "paced: no time of a step for %d ranks: name one, as 1=0.2\n", world);
    return 2;
  }
  char path[4096];
  snprintf(path, sizeof path, "%s/step", getenv("OUT") != NULL ? getenv("OUT") : ".");

  struct timespec clock;
  clock_gettime(CLOCK_MONOTONIC, &clock);
  pace(&clock, atof(argv[2]));

  swell_session_t *session = NULL;
  int code = swell_open(NULL, &session);
  if (code != 0) return die(NULL, "swell_open", code);
  const swell_tensor_t state = {.field_mask = SWELL_TENSOR_LAYER | SWELL_TENSOR_KIND | SWELL_TENSOR_BLOCK, .name = "w", .dtype = SWELL_F64,
                                .dims = 1, .shape = {4096}, .layer = 0, .kind = SWELL_PARAMETER, .begin = {0}, .end = {4096}};
  if ((code = swell_register(session, &state)) != 0) return die(session, "swell_register", code);
  swell_epoch_t epoch;
  if ((code = swell_adopt(session, &epoch)) != 0) return die(session, "swell_adopt", code);

  uint64_t done = epoch.step;
  const int live = getenv("SWELL_RUNTIME") != NULL;
  FILE *kept = live && !epoch.fresh ? NULL : fopen(path, "r");
  if (kept != NULL) {
    unsigned long long step = 0;
    if (fscanf(kept, "%llu", &step) == 1) done = step;
    fclose(kept);
  }

  clock_gettime(CLOCK_MONOTONIC, &clock);
  while (done < steps) {
    pace(&clock, step_s);
    if (asked_to_leave) {
      char fresh[4200];
      snprintf(fresh, sizeof fresh, "%s.new", path);
      FILE *file = rank == 0 ? fopen(fresh, "w") : NULL;
      if (file != NULL && fprintf(file, "%llu\n", (unsigned long long)done) > 0 && fclose(file) == 0) rename(fresh, path);
      break;
    }
    ++done;
    code = swell_step(session, done);
    if (code < 0) return die(session, "swell_step", code);
    if (code == SWELL_SWITCH || code == SWELL_STOP) break;
  }
  swell_close(session);
  return 0;
}
