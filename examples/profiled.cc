// SPDX-License-Identifier: BSD-3-Clause
// Fits a line by gradient descent, and shows its steps to Swell's profiler: one rank of data
// parallel training, each rank a TP group of its own on one stage. With a third argument each pass
// takes at least that long, as on a device that is slower than this host.
//
// usage: RANK=r profiled STEPS [FILE [PASS_MICROSECONDS]]; the measured times are written to FILE
// as one line.
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <thread>

#include "runtime/api/swell.h"

namespace {

using Clock = std::chrono::steady_clock;
constexpr int kMicroBatches = 4, kSamples = 2, kLayers = 2;

[[noreturn]] void die(swell_session_t* session, const char* what) {
  std::fprintf(stderr, "profiled: %s: %s\n", what, swell_last_error(session));
  std::exit(1);
}

/// Keeps a region open while it is in scope.
class Region {
 public:
  Region(swell_session_t* session, swell_region_kind_t kind, int micro_batch,
         std::chrono::microseconds least)
      : session_(session), until_(Clock::now() + least) {
    swell_region_t region{};
    region.field_mask = SWELL_REGION_MICRO_BATCH | SWELL_REGION_LAYERS;
    region.kind = kind;
    region.micro_batch = micro_batch;
    region.layers = kLayers;
    number_ = swell_region_begin(session, &region);
    if (number_ < 0) die(session, "a region");
  }
  ~Region() {
    std::this_thread::sleep_until(until_);
    swell_region_end(session_, number_, 0);
  }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;

 private:
  swell_session_t* session_;
  Clock::time_point until_;
  int number_ = 0;
};

double* parameter(swell_session_t* session, const char* name) {
  void* address = nullptr;
  if (swell_address(session, name, 0, &address, nullptr) != 0) die(session, name);
  return static_cast<double*>(address);
}

}  // namespace

int main(int argc, char** argv) {
  const auto steps = argc > 1 ? std::strtoull(argv[1], nullptr, 10) : 100;
  const std::chrono::microseconds pass(argc > 3 ? std::atol(argv[3]) : 0);
  const char* rank = std::getenv("RANK");
  swell_session_t* session = nullptr;
  if (swell_open(nullptr, &session) != 0) die(nullptr, "swell_open");
  for (const bool is_gradient : {false, true}) {
    swell_tensor_t tensor{};
    tensor.field_mask = SWELL_TENSOR_LAYER | SWELL_TENSOR_KIND;
    tensor.name = is_gradient ? "gradient" : "line";
    tensor.kind = is_gradient ? SWELL_GRADIENT : SWELL_PARAMETER;
    tensor.dtype = SWELL_F64;
    tensor.dims = 1;
    tensor.shape[0] = 2;
    if (swell_register(session, &tensor) != 0) die(session, "swell_register");
  }
  swell_generation_t generation;
  if (swell_adopt(session, &generation) != 0) die(session, "swell_adopt");
  swell_role_t role{};
  role.field_mask = SWELL_ROLE_ACTIVATION | SWELL_ROLE_WHOLE_ACTIVATIONS;
  role.group = rank != nullptr ? std::atoi(rank) : 0;
  role.layers = kLayers;
  role.local_batch = kSamples;
  role.activation_dtype = SWELL_F64;
  role.activation_dims = 1;
  role.activation_shape[0] = 1;
  role.whole_activations = 1;
  if (swell_set_role(session, &role) != 0) die(session, "swell_set_role");

  double *line = parameter(session, "line"), *gradient = parameter(session, "gradient");
  for (auto step = generation.step + 1; step <= steps; ++step) {
    gradient[0] = gradient[1] = 0;
    for (int micro_batch = 0; micro_batch < kMicroBatches; ++micro_batch) {
      double x[kSamples], error[kSamples];
      {
        const Region forward(session, SWELL_FORWARD, micro_batch, pass);
        for (int i = 0; i < kSamples; ++i) {
          x[i] = static_cast<double>(micro_batch * kSamples + i) / (kMicroBatches * kSamples);
          error[i] = line[0] * x[i] + line[1] - (3 * x[i] - 1);
        }
      }
      const Region backward(session, SWELL_BACKWARD, micro_batch, 2 * pass);
      for (int i = 0; i < kSamples; ++i) {
        gradient[0] += error[i] * x[i];
        gradient[1] += error[i];
      }
    }
    {
      const Region optimizer(session, SWELL_OPTIMIZER, 0, pass / 2);
      for (int i = 0; i < 2; ++i) line[i] -= 0.1 * gradient[i];
    }
    const int action = swell_step(session, step);
    if (action < 0) die(session, "swell_step");
    if (action == SWELL_SWITCH || action == SWELL_STOP) break;
  }
  swell_times_t times;
  if (argc > 2 && *argv[2] != 0 && swell_profile(session, &times) == 0) {
    std::FILE* file = std::fopen(argv[2], "w");
    if (file == nullptr) die(session, argv[2]);
    std::fprintf(file, "%g %g %g %d\n", times.forward_s, times.backward_s, times.step_s,
                 times.stable);
    std::fclose(file);
  }
  std::printf("y = %.4f x + %.4f\n", line[0], line[1]);
  swell_close(session);
  return 0;
}
