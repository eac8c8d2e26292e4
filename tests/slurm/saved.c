/* SPDX-License-Identifier: GPL-2.0-or-later */
/*
 * A live program that keeps its state beyond its job: ranks hold the same sum of all steps, rank 0 writes it to OUT/saved where it is
 * told to leave and to OUT/sum at the end, and a run whose state is new goes on from OUT/saved.
 *
 * usage: saved STEPS. OUT/starts has a line for each program: generation, rank, the step that it goes on from, and new, saved or taken.
 */
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#include "runtime/api/swell.h"

static char path[4096];
static const char *in_out(const char *name) {
  snprintf(path, sizeof path, "%s/%s", getenv("OUT"), name);
  return path;
}

static int save(const char *name, uint64_t step, const uint64_t *sum) {
  char temporary[4096];
  snprintf(temporary, sizeof temporary, "%s/%s.new", getenv("OUT"), name);
  FILE *file = fopen(temporary, "w");
  if (file == NULL || fprintf(file, "%" PRIu64 " %" PRIu64 "\n", step, *sum) < 0 || fclose(file) != 0) return -1;
  return rename(temporary, in_out(name));
}

static int failed(swell_session_t *session, const char *what) {
  fprintf(stderr, "saved: %s: %s\n", what, swell_last_error(session));
  return 1;
}

int main(int argc, char **argv) {
  const uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 100;
  const char *rank = getenv("RANK");
  swell_session_t *session = NULL;
  swell_generation_t generation;
  void *address = NULL;
  const swell_tensor_t tensor = {.name = "sum", .dtype = SWELL_I64, .dims = 1, .shape = {1}};
  if (swell_open(NULL, &session) != 0 || swell_register(session, &tensor) != 0 || swell_adopt(session, &generation) != 0 ||
      swell_address(session, "sum", 0, &address, NULL) != 0)
    return failed(session, "begin");
  uint64_t *sum = address, step = generation.step;
  const char *from = generation.fresh ? "new" : "taken";
  FILE *saved = generation.fresh ? fopen(in_out("saved"), "r") : NULL;
  if (saved != NULL && fscanf(saved, "%" SCNu64 " %" SCNu64, &step, sum) == 2) from = "saved";
  FILE *starts = fopen(in_out("starts"), "a");
  if (starts == NULL || fprintf(starts, "%" PRIu64 " %s %" PRIu64 " %s\n", (uint64_t)generation.generation, rank, step, from) < 0 || fclose(starts) != 0) return 1;
  while (step < steps) {
    *sum += ++step;
    /* As many steps a second as let all ranks keep step with each other. */
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    const int code = swell_step(session, step);
    if (code < 0) return failed(session, "swell_step");
    if (code == SWELL_STOP) return *rank == '0' && save("saved", step, sum) != 0;
    if (code == SWELL_SWITCH) return 0;
  }
  return *rank == '0' && save("sum", step, sum) != 0;
}
