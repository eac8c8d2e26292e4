// SPDX-License-Identifier: GPL-2.0-or-later
// A paced program that follows its plan: each layer and sample takes a stated time, one after the
// other as in 1F1B, and samples are divided by SWELL_PLAN. Where there is none each rank takes the
// same, and the last one what is left over. Nothing is computed; what its steps take is what a plan
// on real devices would.
//
// usage: planned LAYERS SAMPLES MICROSECONDS MICRO_BATCHES [GRADIENT_KB [KB_PER_S]]
// SAMPLES: of a micro-batch. GRADIENT_KB: ranks of a stage sum so much in each step, over TCP, and
// check the sum; OUT, a folder, is needed for that. KB_PER_S: what goes to another node takes an
// interface that is no faster. PLANNED_STAGES=1 in the environment: without a plan each rank is a
// stage, and the program says its chunks: it takes plans with those, and with schedules that put
// the gradients of weights off.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <jansson.h>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "gradients.h"
#include "runtime/api/swell.h"

namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void die(swell_session_t* session, const char* what) {
  std::fprintf(stderr, "planned: %s: %s\n", what, swell_last_error(session));
  std::exit(1);
}

int number(const char* name, int otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::atoi(text) : otherwise;
}

/// The part of a step that this rank does.
struct Part {
  int stage = 0, group = 0, layers = 1, samples = 1, micro_batches = 1;
  int stages = 1;
  std::vector<int> chunks;      ///< units of each; empty: not said
  bool splits_weights = false;  ///< the schedule has passes of weights
  int place = 0, peers = 1;     ///< among the ranks of its stage
  long slowest = 1;             ///< layers times samples of the stage that the others wait for
};

/// Ranks go over the plan in its order: stage by stage, group by group, GPU by GPU.
Part part_of(json_t* plan, int rank) {
  Part part;
  part.micro_batches = static_cast<int>(json_integer_value(json_object_get(plan, "micro_batches")));
  json_t* stages = json_object_get(plan, "stages");
  part.stages = static_cast<int>(json_array_size(stages));
  const char* schedule = json_string_value(json_object_get(plan, "schedule"));
  part.splits_weights = schedule != nullptr && (std::strcmp(schedule, "zero-bubble") == 0 ||
                                                std::strchr(schedule, 'W') != nullptr);
  int next = 0;
  for (int i = 0; i < part.stages; ++i) {
    json_t* stage = json_array_get(stages, static_cast<size_t>(i));
    json_t* groups = json_object_get(stage, "groups");
    const int layers = static_cast<int>(json_integer_value(json_object_get(stage, "layers")));
    const int first = next;
    for (size_t j = 0; j < json_array_size(groups); ++j) {
      json_t* group = json_array_get(groups, j);
      const int samples =
          static_cast<int>(json_integer_value(json_object_get(group, "local_batch")));
      part.slowest = std::max(part.slowest, static_cast<long>(layers) * samples);
      const int gpus = static_cast<int>(json_array_size(json_object_get(group, "gpus")));
      if (rank >= next && rank < next + gpus) {
        part.stage = i;
        part.group = static_cast<int>(j);
        part.layers = layers;
        part.samples = samples;
        json_t* chunks = json_object_get(stage, "chunks");
        for (size_t c = 0; c < json_array_size(chunks); ++c)
          part.chunks.push_back(static_cast<int>(json_integer_value(json_array_get(chunks, c))));
        part.place = rank - first;
      }
      next += gpus;
    }
    if (part.stage == i) part.peers = next - first;
  }
  return part;
}

template <class Work>
void region(swell_session_t* session, swell_region_kind_t kind, int micro_batch, int layers,
            Work work) {
  swell_region_t one{};
  one.field_mask = SWELL_REGION_MICRO_BATCH | SWELL_REGION_LAYERS;
  one.kind = kind;
  one.micro_batch = micro_batch;
  one.layers = layers;
  const int opened = swell_region_begin(session, &one);
  if (opened < 0) die(session, "a region");
  work();
  swell_region_end(session, opened, 0);
}

auto lasting(std::chrono::microseconds time) {
  return [until = Clock::now() + time] { std::this_thread::sleep_until(until); };
}

/// The ring of this rank's stage in this generation.
GradientRing::Place place_of(const Part& part, std::uint32_t bytes_per_s) {
  const auto text = [](const char* name) {
    const char* set = std::getenv(name);
    return std::string(set != nullptr ? set : "");
  };
  return {text("OUT") + "/ring." + text("SWELL_GENERATION") + "." + text("MASTER_PORT") + "." +
              std::to_string(part.stage),
          part.place, part.peers, text("SLURMD_NODENAME"), bytes_per_s};
}

/// Sums gradients whose sum is known; ends the program where it is another.
void sum_gradients(GradientRing& ring, const Part& part, double* values, std::size_t count) {
  std::fill_n(values, count, part.place + 1);
  ring.sum(values, count);
  const double sum = part.peers * (part.peers + 1) / 2;
  if (std::any_of(values, values + count, [&](double value) { return value != sum; }))
    throw std::runtime_error("gradients: a sum is wrong");
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 5) return 2;
  const int layers = std::atoi(argv[1]), samples = std::atoi(argv[2]);
  const std::chrono::microseconds unit(std::atol(argv[3]));
  const std::size_t gradients = argc > 5 ? std::strtoul(argv[5], nullptr, 10) * 1000 / 8 : 0;
  const std::uint32_t bytes_per_s = argc > 6 ? std::atoi(argv[6]) * 1000 : 0;
  const int rank = number("RANK", 0), world = number("WORLD_SIZE", 1);
  const int each = std::max(samples / world, 1),
            last = std::max(samples - (world - 1) * each, each);
  Part part{0, rank, layers, rank == world - 1 ? last : each, std::atoi(argv[4])};
  part.slowest = static_cast<long>(part.layers) * last;
  part.place = rank;
  part.peers = world;
  const bool is_pipeline = std::getenv("PLANNED_STAGES") != nullptr;
  if (is_pipeline) {
    part = {rank, 0, layers / world, samples, part.micro_batches, world};
    part.slowest = static_cast<long>(part.layers) * samples;
  }
  if (const char* text = std::getenv("SWELL_PLAN")) {
    json_t* plan = json_loads(text, 0, nullptr);
    part = part_of(plan, rank);
    json_decref(plan);
  }
  std::optional<GradientRing> ring;
  if (gradients > 0) ring.emplace(place_of(part, bytes_per_s));
  if (const char* folder = std::getenv("OUT")) {
    const char* plan = std::getenv("SWELL_PLAN");
    std::FILE* file = std::fopen((std::string(folder) + "/began").c_str(), "a");
    if (file != nullptr)
      std::fprintf(file, "%d %d %d %d %d %d %s\n", number("SWELL_GENERATION", 0), rank, world,
                   part.stage, part.layers, part.samples, plan != nullptr ? plan : "-");
    if (file != nullptr) std::fclose(file);
  }

  swell_session_t* session = nullptr;
  if (swell_open(nullptr, &session) != 0) die(nullptr, "swell_open");
  for (const bool is_gradient : {false, true}) {
    swell_tensor_t tensor{};
    tensor.field_mask = SWELL_TENSOR_LAYER | SWELL_TENSOR_KIND;
    tensor.name = is_gradient ? "gradient" : "line";
    tensor.kind = is_gradient ? SWELL_GRADIENT : SWELL_PARAMETER;
    tensor.dtype = SWELL_F64;
    tensor.dims = 1;
    tensor.shape[0] = is_gradient && gradients > 0 ? static_cast<std::int64_t>(gradients) : 2;
    if (swell_register(session, &tensor) != 0) die(session, "swell_register");
  }
  swell_generation_t generation;
  if (swell_adopt(session, &generation) != 0) die(session, "swell_adopt");
  swell_role_t role{};
  role.field_mask = SWELL_ROLE_ACTIVATION | SWELL_ROLE_WHOLE_ACTIVATIONS;
  role.stage = part.stage;
  role.group = part.group;
  role.layers = part.layers;
  role.local_batch = part.samples;
  role.activation_dtype = SWELL_F64;
  role.activation_dims = 1;
  role.activation_shape[0] = 1;
  role.whole_activations = 1;
  if (is_pipeline) {
    if (part.chunks.empty())  // the embedding, and the head, are units too
      part.chunks = {part.layers + (part.stage == 0) + (part.stage + 1 == part.stages)};
    role.field_mask |= SWELL_ROLE_CHUNKS;
    role.chunks = part.chunks.data();
    role.chunk_count = static_cast<int>(part.chunks.size());
  }
  if (swell_set_role(session, &role) != 0) die(session, "swell_set_role");

  const long work = static_cast<long>(part.layers) * part.samples;
  void* at = nullptr;
  if (swell_address(session, "gradient", 0, &at, nullptr) != 0) die(session, "swell_address");
  auto* values = static_cast<double*>(at);
  for (auto step = generation.step + 1;; ++step) {
    const auto begin = Clock::now();
    for (int micro_batch = 0; micro_batch < part.micro_batches; ++micro_batch) {
      region(session, SWELL_FORWARD, micro_batch, part.layers, lasting(work * unit));
      const long weights = part.splits_weights ? work * 4 / 5 : 0;  // 0.4 of the backward pass
      region(session, SWELL_BACKWARD, micro_batch, part.layers,
             lasting((2 * work - weights) * unit));
      if (weights > 0)
        region(session, SWELL_WEIGHTS, micro_batch, part.layers, lasting(weights * unit));
    }
    // The pipeline fills, and waits for its slowest stage: for a chunk of each before it.
    const auto chunks = static_cast<long>(std::max<std::size_t>(part.chunks.size(), 1));
    std::this_thread::sleep_until(begin + 3 * part.slowest * part.micro_batches * unit +
                                  3 * part.slowest * (part.stages - 1) * unit / chunks);
    if (ring)
      region(session, SWELL_DP_SYNC, 0, part.layers,
             [&] { sum_gradients(*ring, part, values, gradients); });
    region(session, SWELL_OPTIMIZER, 0, part.layers, lasting(std::chrono::microseconds(500)));
    const int action = swell_step(session, step);
    if (action < 0) die(session, "swell_step");
    if (action == SWELL_SWITCH || action == SWELL_STOP) break;
  }
  swell_close(session);
  return 0;
}
