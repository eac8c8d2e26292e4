// SPDX-License-Identifier: GPL-2.0-or-later
// What device_live_test starts: a program whose state is on a GPU, of which the stand-in's memory
// is the host's. Element i of "w" begins as i and grows by 1 a step; TP cuts its rows. WORDS:
// steps; the environment: RANK, PLAN, WHERE (device, host, or own: on the GPU, allocated here;
// pages: the same as PyTorch expands it), SMALL (set: allocated here), ROWS (64), STAYS, TENSORS
// (1): more of them, "w1", ... whose elements go on where those of the one before end, of which
// MIXED (set) has every other in the host's memory. Exits with 0 at a switch, and at the end if
// each element is what it must be.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <string>
#include <unistd.h>
#include <utility>
#include <vector>

#include "runtime/api/swell.h"
#include "runtime/device/cuda_driver.h"

namespace {

constexpr std::int64_t kColumns = 8192;  // of 8 bytes: 64 rows are 4 MiB
constexpr std::int64_t kWatched = 512;   // one element of so many: a page

struct Weights {
  std::string name;
  std::int64_t* w = nullptr;
  std::int64_t first = 0, count = 0;
  void* own = nullptr;
};

struct State {
  swell_session_t* session = nullptr;
  std::vector<Weights> weights = {};
  std::int64_t* small = nullptr;
};

[[noreturn]] void die(const char* what, const swell_session_t* session) {
  std::fprintf(stderr, "device_program: %s: %s\n", what, swell_last_error(session));
  std::_Exit(1);
}

namespace cuda = swell::runtime::cuda;

/// Takes memory in pieces of 2 MiB behind one another, as PyTorch's expandable segments do.
template <typename Call>
std::uint64_t in_pages(const Call& call, std::size_t bytes) {
  constexpr std::size_t kPage = std::size_t{2} << 20;
  const std::size_t pages = (bytes + kPage - 1) / kPage;
  std::uint64_t address = 0;
  const cuda::AllocationProperties properties;
  const cuda::AccessDescription access;
  call("cuMemAddressReserve", cuda::Reserve(nullptr), &address, pages * kPage, 0, 0, 0);
  for (std::size_t page = 0; page < pages; ++page) {
    std::uint64_t handle = 0;
    call("cuMemCreate", cuda::Create(nullptr), &handle, kPage, &properties, 0);
    call("cuMemMap", cuda::Map(nullptr), address + page * kPage, kPage, 0, handle, 0);
    call("cuMemRelease", cuda::Release(nullptr), handle);
  }
  call("cuMemSetAccess", cuda::SetAccess(nullptr), address, pages * kPage, &access, 1);
  return address;
}

/// Memory of the GPU that this process has allocated, full of something.
void* own_memory(std::size_t bytes, bool has_pages) {
  void* const driver = dlopen("libcuda.so.1", RTLD_NOW);
  void* context = nullptr;
  std::uint64_t address = 0;
  const auto call = [&](const char* name, auto function, auto... arguments) {
    function =
        reinterpret_cast<decltype(function)>(driver != nullptr ? dlsym(driver, name) : nullptr);
    if (function == nullptr || function(arguments...) != 0) die(name, nullptr);
  };
  call("cuDevicePrimaryCtxRetain", cuda::ContextRetain(nullptr), &context, 0);
  call("cuCtxPushCurrent_v2", cuda::ContextPush(nullptr), context);
  if (has_pages) address = in_pages(call, bytes);
  else call("cuMemAlloc_v2", cuda::Allocate(nullptr), &address, bytes);
  call("cuCtxPopCurrent_v2", cuda::ContextPop(nullptr), &context);
  std::memset(reinterpret_cast<void*>(address), 0x5a, bytes);
  return reinterpret_cast<void*>(address);
}

int number_in(const char* variable, int otherwise) {
  const char* set = std::getenv(variable);
  return set != nullptr ? std::atoi(set) : otherwise;
}
std::int64_t rows() { return number_in("ROWS", 64); }

void add_weights(State& state, int number, int tp, int rank, std::string where) {
  Weights its;
  its.name = number == 0 ? "w" : "w" + std::to_string(number);
  if (std::getenv("MIXED") != nullptr && number % 2 != 0) where = "host";
  swell_tensor_t w{};
  w.field_mask = SWELL_TENSOR_BLOCK | (where != "host" ? SWELL_TENSOR_DEVICE : 0);
  w.name = its.name.c_str();
  w.dtype = SWELL_I64;
  w.dims = 2;
  w.shape[0] = rows();
  w.shape[1] = w.end[1] = kColumns;
  w.begin[0] = rows() * (rank % tp) / tp;
  w.end[0] = rows() * (rank % tp + 1) / tp;
  its.first = (number * rows() + w.begin[0]) * kColumns;
  its.count = (w.end[0] - w.begin[0]) * kColumns;
  if (where == "own" || where == "pages") {
    w.field_mask |= SWELL_TENSOR_ADDRESS;
    w.address = its.own =
        own_memory(static_cast<std::size_t>(its.count) * sizeof *its.w, where == "pages");
  }
  if (swell_register(state.session, &w) != 0) die("registering w", state.session);
  state.weights.push_back(std::move(its));
}

void add(State& state, const std::string& plan, int rank, const std::string& where) {
  int pp = 1, dp = 1, tp = 1, zero = 0;
  std::sscanf(plan.c_str(), "%d,%d,%d,%d", &pp, &dp, &tp, &zero);
  for (int i = 0; i < number_in("TENSORS", 1); ++i) add_weights(state, i, tp, rank, where);
  swell_tensor_t small{};
  small.field_mask = SWELL_TENSOR_DEVICE;
  small.name = "small";
  small.dtype = SWELL_I64;
  small.dims = 1;
  small.shape[0] = 1;
  if (std::getenv("SMALL") != nullptr) {
    small.field_mask |= SWELL_TENSOR_ADDRESS;
    small.address = own_memory(sizeof *state.small, false);
  }
  if (swell_register(state.session, &small) != 0) die("registering small", state.session);
}

std::uint64_t adopt(State& state) {
  swell_generation_t generation{};
  if (swell_adopt(state.session, &generation) != 0) die("adopting", state.session);
  void* at = nullptr;
  std::size_t bytes = 0;
  for (Weights& its : state.weights) {
    if (swell_address(state.session, its.name.c_str(), 0, &at, &bytes) != 0)
      die("address", state.session);
    its.w = static_cast<std::int64_t*>(at);
    if (its.own != nullptr && its.own != at) die("own memory is elsewhere", state.session);
  }
  if (swell_address(state.session, "small", 0, &at, &bytes) != 0) die("address", state.session);
  state.small = static_cast<std::int64_t*>(at);
  for (const Weights& its : state.weights)
    for (std::int64_t i = 0; generation.fresh != 0 && i < its.count; ++i) {
      if (its.own == nullptr && its.w[i] != 0) die("new memory is not 0", state.session);
      its.w[i] = its.first + i;
    }
  return generation.step;
}

/// Out of ThreadSanitizer's sight, who would take most of its time for them.
[[gnu::no_sanitize("thread")]] void grow_unwatched(std::int64_t* w, std::int64_t count) {
  for (std::int64_t i = 0; i < count; ++i)
    if (i % kWatched != 0) ++w[i];
}

/// Makes one step. A copy by another thread meanwhile has one of the watched elements.
void grow(const Weights& its) {
  grow_unwatched(its.w, its.count);
  for (std::int64_t i = 0; i < its.count; i += kWatched) ++its.w[i];
}

int leave(const State& state) {
  swell_close(state.session);
  return 0;
}

std::string variable(const State& state, const char* name, const char* otherwise) {
  const char* set = swell_variable(state.session, name);
  return set != nullptr ? set : otherwise;
}

}  // namespace

int main(int, char** argv) {
  const auto steps = std::strtoull(argv[1], nullptr, 10);
  swell_open_params_t params{};
  params.field_mask = SWELL_OPEN_STAYS;
  params.stays = std::getenv("STAYS") != nullptr;
  State state, next;
  if (swell_open(&params, &state.session) != 0) die("opening", nullptr);
  const auto begin = [](State& one) {
    add(one, variable(one, "PLAN", "1,1,1,0"), std::stoi(variable(one, "RANK", "0")),
        variable(one, "WHERE", "device"));
  };
  begin(state);
  std::uint64_t step = adopt(state);
  while (step < steps) {
    ++step;
    for (const Weights& its : state.weights) grow(its);
    *state.small = static_cast<std::int64_t>(step);
    usleep(1000);
    const int action = swell_step(state.session, step);
    if (action < 0) die("step", state.session);
    if (action == SWELL_STOP) return leave(state);
    if (action == SWELL_PREPARE) {
      if (swell_next(state.session, &next.session) != 0) die("next", nullptr);
      begin(next);
      if (swell_offer(next.session) != 0) die("offer", next.session);
    }
    if (action == SWELL_SWITCH) {
      if (next.session == nullptr) return leave(state);
      step = adopt(next);
      swell_close(state.session);
      state = next;
      next = {};
    }
  }
  for (const Weights& its : state.weights)
    for (std::int64_t i = 0; i < its.count; ++i)
      if (its.w[i] != its.first + i + static_cast<std::int64_t>(steps)) {
        std::fprintf(stderr, "device_program: element %lld is %lld\n",
                     static_cast<long long>(its.first + i), static_cast<long long>(its.w[i]));
        return 2;
      }
  if (*state.small != static_cast<std::int64_t>(steps)) return 3;
  return leave(state);
}
