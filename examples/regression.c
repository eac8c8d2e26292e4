/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fits weights to targets with Adam, laid out like a model: layers over pipeline stages, rows of a layer over TP ranks,
 * replicas over DP groups; under ZeRO (stage 3) each DP group holds a range of each layer's tensors instead. Each weight's updates are the same
 * operations in the same order under every plan, so a resized run ends bitwise equal to one that was not resized.
 *
 * usage: regression STEPS [LAYERS ROWS COLUMNS [STEP_MICROSECONDS]]
 * RANK and WORLD_SIZE, set by swellrun, give the place of the process: (stage * dp + group) * tp + shard. PLAN=pp,dp,tp,zero is the
 * plan; without it, PLANS="1=1,1,1,0 4=2,1,2,0" lists plans by WORLD_SIZE; without both, all ranks are replicas. OUT=FOLDER: the parameters are
 * written there at the end, one file per layer, and one line for each program that began. Once OUT/last exists, the number in it replaces STEPS; all ranks
 * must read it before that step. STAYS: the process stays at a switch; STAYS=together: only if no new process is started.
 * Without SWELL_RUNTIME it trains in a local session.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "runtime/api/swell.h"

static int layers = 4, rows = 12, columns = 10;
/* A rank under a plan, with its layers [first, end). */
static struct place { int pp, dp, tp, zero, stage, group, shard, first, end; } at;

static int die(swell_session_t *session, const char *what, int code) {
  fprintf(stderr, "regression: %s: %s (%s)\n", what, swell_last_error(session), strerror(-code));
  swell_close(session);
  return 1;
}

/* Returns the first of a TP shard's rows in a layer. */
static int first_row(int of_shard) { return rows * of_shard / at.tp; }
/* Elements of the shard that one DP group updates under ZeRO; the ranges of the last groups extend past the end. */
static int64_t zero_width(void) {
  const int64_t all = (int64_t)(first_row(at.shard + 1) - first_row(at.shard)) * columns;
  return (all + at.dp - 1) / at.dp;
}

static int add(swell_session_t *session, const char *what, int layer, swell_kind_t kind) {
  char name[64];
  snprintf(name, sizeof name, "layer%d.%s", layer, what);
  swell_tensor_t tensor = {.field_mask = SWELL_TENSOR_LAYER | SWELL_TENSOR_KIND | SWELL_TENSOR_BLOCK,
                           .name = name, .dtype = SWELL_F64, .dims = 2, .shape = {rows, columns}, .layer = layer, .kind = kind,
                           .begin = {first_row(at.shard), 0}, .end = {first_row(at.shard + 1), columns}};
  if (at.zero) /* each group holds its range of all four tensors; replicas hold all of them */
    tensor.field_mask |= SWELL_TENSOR_RANGE, tensor.flat_begin = at.group * zero_width(), tensor.flat_end = tensor.flat_begin + zero_width();
  return swell_register(session, &tensor);
}

static double *memory(swell_session_t *session, const char *what, int layer) {
  char name[64];
  void *address = NULL;
  snprintf(name, sizeof name, "layer%d.%s", layer, what);
  if (swell_address(session, name, 0, &address, NULL) != 0) exit(die(session, name, -1));
  return address;
}

/* Adam on one element, which is number `element` of the model. */
static void update(double *w, double *g, double *m, double *v, int64_t i, int64_t element, uint64_t step) {
  const double target = sin(0.1 * (double)element), b1 = 0.9, b2 = 0.999;
  g[i] = 2 * (w[i] - target);
  m[i] = b1 * m[i] + (1 - b1) * g[i];
  v[i] = b2 * v[i] + (1 - b2) * g[i] * g[i];
  w[i] -= 0.01 * (m[i] / (1 - pow(b1, (double)step))) / (sqrt(v[i] / (1 - pow(b2, (double)step))) + 1e-8);
}

/* Makes the plan for this many ranks. Returns 0 if the given text is not a plan. */
static int read_plan(const char *plan, const char *plans, int world) {
  char key[16];
  if (plan == NULL && plans != NULL) {
    snprintf(key, sizeof key, "%d=", world);
    while (plans != NULL && strncmp(plans, key, strlen(key)) != 0)
      plans = strchr(plans, ' ') != NULL ? strchr(plans, ' ') + 1 : NULL;
    plan = plans != NULL ? plans + strlen(key) : NULL;
  }
  at = (struct place){.pp = 1, .dp = world, .tp = 1};
  return plan == NULL || sscanf(plan, "%d,%d,%d,%d", &at.pp, &at.dp, &at.tp, &at.zero) == 4;
}

/* Writes this rank's part of a layer's parameters to its place in OUT's file of the layer. */
static void write_out(const char *folder, int layer, const double *w, int64_t from, int64_t count) {
  char path[4096];
  snprintf(path, sizeof path, "%s/layer%d", folder, layer);
  const int fd = open(path, O_WRONLY | O_CREAT, 0666);
  if (fd < 0 || pwrite(fd, w, (size_t)count * sizeof *w, from * (off_t)sizeof *w) < 0 || close(fd) != 0) perror(path);
}

/* Finds the place of this rank in the session's plan, and registers what the rank holds there. */
static int take_place(swell_session_t *session) {
  const char *rank_text = swell_variable(session, "RANK"), *world = swell_variable(session, "WORLD_SIZE");
  const int rank = rank_text != NULL ? atoi(rank_text) : 0;
  if (!read_plan(swell_variable(session, "PLAN"), getenv("PLANS"), world != NULL ? atoi(world) : 1)) fprintf(stderr, "regression: PLAN and the plans in PLANS must be pp,dp,tp,zero\n"), exit(2);
  at.shard = rank % at.tp, at.group = rank / at.tp % at.dp, at.stage = rank / at.tp / at.dp;
  at.first = layers * at.stage / at.pp, at.end = layers * (at.stage + 1) / at.pp;
  int code = 0;
  for (int layer = at.first; layer < at.end && code == 0; ++layer)
    if ((code = add(session, "w", layer, SWELL_PARAMETER)) == 0 && (code = add(session, "g", layer, SWELL_GRADIENT)) == 0)
      if ((code = add(session, "m", layer, SWELL_MOMENT)) == 0) code = add(session, "v", layer, SWELL_MOMENT);
  return code;
}

/* Returns the last step: STEPS, or the number in OUT/last once that file exists. */
static uint64_t last_step(uint64_t steps) {
  char path[4096];
  unsigned long long number = 0;
  if (getenv("OUT") == NULL || snprintf(path, sizeof path, "%s/last", getenv("OUT")) < 0) return steps;
  FILE *file = fopen(path, "r");
  if (file == NULL) return steps;
  if (fscanf(file, "%llu", &number) == 1) steps = number;
  fclose(file);
  return steps;
}

static int begin(swell_session_t *session, swell_generation_t *generation) {
  const char *rank = swell_variable(session, "RANK"), *out = getenv("OUT");
  const int code = swell_adopt(session, generation);
  char path[4096];
  if (code != 0 || out == NULL || snprintf(path, sizeof path, "%s/began", out) < 0) return code;
  FILE *began = fopen(path, "a");
  if (began != NULL) fprintf(began, "%d %llu %s %d,%d,%d,%d %llu %s\n", (int)getpid(), (unsigned long long)generation->generation, rank != NULL ? rank : "0", at.pp, at.dp, at.tp, at.zero, (unsigned long long)generation->step, generation->fresh ? "new" : "taken"), fclose(began);
  return 0;
}

int main(int argc, char **argv) {
  uint64_t steps = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
  if (argc > 4) layers = atoi(argv[2]), rows = atoi(argv[3]), columns = atoi(argv[4]);
  const long pace_us = argc > 5 ? atol(argv[5]) : 0;
  const char *stays = getenv("STAYS");
  const int together = stays != NULL && strcmp(stays, "together") == 0;
  const swell_open_params_t params = {.field_mask = SWELL_OPEN_STAYS | SWELL_OPEN_STAYS_IF_NONE_IS_NEW,
                                      .stays = stays != NULL && !together, .stays_if_none_is_new = together};
  swell_generation_t generation; swell_session_t *session = NULL, *next = NULL; /* next: session of the generation that is being prepared */
  int code = swell_open(&params, &session);
  if (code != 0 || (code = take_place(session)) != 0) return die(session, "swell_open or swell_register", code);
  struct place here = at, then = at; /* place in this generation, and in the next one */
  if ((code = begin(session, &generation)) != 0) return die(session, "swell_adopt", code);
  /* New state is zero, with which this regression begins. */
  for (uint64_t step = generation.step + 1; step <= (steps = last_step(steps)); ++step) {
    const int64_t all = (int64_t)(first_row(at.shard + 1) - first_row(at.shard)) * columns;
    const int64_t from = at.zero ? at.group * zero_width() : 0, to = at.zero ? from + zero_width() : all;
    for (int layer = at.first; layer < at.end; ++layer) {
      double *w = memory(session, "w", layer), *g = memory(session, "g", layer), *m = memory(session, "m", layer), *v = memory(session, "v", layer);
      for (int64_t i = from; i < to && i < all; ++i)
        update(w, g, m, v, i - from, ((int64_t)layer * rows + first_row(at.shard)) * columns + i, step);
      if (getenv("OUT") != NULL && step == steps) write_out(getenv("OUT"), layer, w, (int64_t)first_row(at.shard) * columns + from, (to < all ? to : all) - from);
    }
    if (pace_us > 0) nanosleep(&(struct timespec){pace_us / 1000000, pace_us % 1000000 * 1000}, NULL);
    if ((code = swell_step(session, step)) < 0) return die(session, "swell_step", code);
    if (code == SWELL_PREPARE) {
      swell_close(next);
      if (swell_next(session, &next) == 0 && (take_place(next) != 0 || swell_offer(next) != 0)) {
        swell_decline(session, swell_last_error(next));
        swell_close(next), next = NULL;
      }
      then = at, at = here;
    } else if (code == SWELL_SWITCH && next != NULL) {
      swell_close(session);
      session = next, next = NULL, at = here = then;
      if ((code = begin(session, &generation)) != 0) return code == -ECANCELED ? 0 : die(session, "swell_adopt", code);
    } else if (code == SWELL_SWITCH || code == SWELL_STOP) {
      break;
    }
  }
  return swell_close(next), swell_close(session), 0;
}
