// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include "launcher/rank_assignment.h"

/// Returns a node of an allocation of `job` with one worker for each GPU and 8 CPUs for each
/// worker.
inline swell::launcher::WorkerNode worker_node(int id, swell::control::JobId job, const char* name,
                                               int gpus) {
  swell::launcher::WorkerNode made;
  made.id = id;
  made.job = job;
  made.name = name;
  made.cpus = 8 * gpus;
  made.gpus = made.workers = gpus;
  return made;
}
