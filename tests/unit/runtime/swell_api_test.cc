// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/api/swell.h"

#include <cerrno>
#include <criterion/criterion.h>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <sys/wait.h>
#include <thread>
#include <type_traits>
#include <unistd.h>

#include "profiler/rank_profile.h"
#include "support/live_job.h"

using namespace swell;
using support::LiveJob;

namespace {

swell_tensor_t tensor(const char* name, std::int64_t elements) {
  swell_tensor_t made{};
  made.name = name;
  made.dtype = SWELL_F64;
  made.dims = 1;
  made.shape[0] = elements;
  return made;
}

swell_session_t* open_at(const std::string& socket) {
  swell_open_params_t params{SWELL_OPEN_SOCKET, socket.c_str()};
  swell_session_t* session = nullptr;
  cr_assert_eq(swell_open(&params, &session), 0, "%s", swell_last_error(nullptr));
  return session;
}

/// Registers `values` as the program's own memory, adopts, and says what for.
swell_session_t* adopt_own(const std::string& socket, std::vector<double>& values,
                           swell_generation_t* generation) {
  swell_session_t* session = open_at(socket);
  swell_tensor_t own = tensor("w", static_cast<std::int64_t>(values.size()));
  own.field_mask = SWELL_TENSOR_ADDRESS;
  own.address = values.data();
  cr_assert_eq(swell_register(session, &own), 0, "%s", swell_last_error(session));
  cr_assert_eq(swell_adopt(session, generation), 0, "%s", swell_last_error(session));
  return session;
}

}  // namespace

static_assert(std::is_same_v<swell_epoch_t, swell_generation_t>);

Test(swell_api, a_program_may_use_the_former_name_of_a_generation) {
  swell_epoch_t former{};
  former.generation = 3;
  cr_assert_eq(former.epoch, 3);
}

Test(swell_api, works_alone_outside_of_swell) {
  unsetenv("SWELL_RUNTIME");
  swell_session_t* session = nullptr;
  cr_assert_eq(swell_open(nullptr, &session), 0);
  swell_tensor_t w = tensor("w", 100), head = tensor("head", 100);
  head.field_mask = SWELL_TENSOR_ALIAS;
  head.alias_of = "w";
  cr_assert_eq(swell_register(session, &w), 0);
  cr_assert_eq(swell_register(session, &head), 0);
  cr_assert_eq(swell_step(session, 1), -EAGAIN);
  swell_generation_t generation;
  cr_assert_eq(swell_adopt(session, &generation), 0);
  cr_assert(generation.fresh && generation.generation == 0 && generation.step == 0);
  void *address = nullptr, *tied = nullptr;
  std::size_t bytes = 0;
  cr_assert_eq(swell_address(session, "w", 0, &address, &bytes), 0);
  cr_assert_eq(swell_address(session, "head", 0, &tied, nullptr), 0);
  cr_assert_eq(bytes, 800);
  cr_assert_eq(address, tied);
  std::memset(address, 1, bytes);
  cr_assert_eq(swell_step(session, 1), SWELL_GO_ON);
  cr_assert_eq(swell_step(session, 1), -EINVAL);
  cr_assert_str_eq(swell_last_error(session), "step 1 follows step 1; steps rise");
  cr_assert_eq(swell_address(session, "w", 1, &address, nullptr), -ENOENT);
  cr_assert_eq(swell_register(session, &w), -EBUSY);
  swell_close(session);
  swell_close(nullptr);
}

Test(swell_api, a_forked_process_leaves_the_session_to_the_one_that_opened_it, .timeout = 60) {
  unsetenv("SWELL_RUNTIME");
  swell_session_t* session = nullptr;
  cr_assert_eq(swell_open(nullptr, &session), 0);
  swell_tensor_t its = tensor("w", 4);
  cr_assert_eq(swell_register(session, &its), 0, "%s", swell_last_error(session));
  cr_assert_eq(swell_adopt(session, nullptr), 0, "%s", swell_last_error(session));
  void* address = nullptr;
  cr_assert_eq(swell_address(session, "w", 0, &address, nullptr), 0);
  auto* w = static_cast<volatile double*>(address);
  w[0] = 7;
  const pid_t child = fork();
  if (child == 0) {
    swell_close(session);
    _exit(w[0] == 7 ? 0 : 1);  // memory that is not mapped ends it by a signal
  }
  int status = -1;
  cr_assert_eq(waitpid(child, &status, 0), child);
  cr_assert(WIFEXITED(status) && WEXITSTATUS(status) == 0, "%d", status);
  cr_assert_eq(swell_step(session, 1), SWELL_GO_ON, "%s", swell_last_error(session));
  swell_close(session);
}

Test(swell_api, says_which_value_is_wrong) {
  unsetenv("SWELL_RUNTIME");
  swell_session_t* session = nullptr;
  cr_assert_eq(swell_open(nullptr, nullptr), -EINVAL);
  swell_open_params_t nowhere{SWELL_OPEN_SOCKET, "/nowhere/socket"};
  cr_assert_eq(swell_open(&nowhere, &session), -ECONNREFUSED);
  cr_assert_str_eq(
      swell_last_error(nullptr),
      "connecting to /nowhere/socket: No such file or directory; in a container, mount "
      "/nowhere of the host at the same place");
  cr_assert_eq(swell_open(nullptr, &session), 0);
  swell_tensor_t bad = tensor("w", 4);
  bad.dims = 9;
  cr_assert_eq(swell_register(session, &bad), -EINVAL);
  cr_assert_str_eq(swell_last_error(session),
                   "tensor w: dims must be 1 to 8; a scalar is of shape 1");
  bad = tensor("w", 4);
  bad.field_mask = SWELL_TENSOR_BLOCK;
  bad.begin[0] = 2;
  bad.end[0] = INT64_MAX;
  cr_assert_eq(swell_register(session, &bad), -EINVAL);
  cr_assert_str_eq(
      swell_last_error(session),
      "tensor w: dimension 0: the part goes from 2 to 9223372036854775807; it must be within 0 to 4 and not empty");
  bad = tensor("w", 4);
  bad.dtype = static_cast<swell_dtype_t>(99);
  cr_assert_eq(swell_register(session, &bad), -EINVAL);
  bad = tensor(nullptr, 4);
  cr_assert_eq(swell_register(session, &bad), -EINVAL);
  cr_assert_eq(swell_register(nullptr, &bad), -EINVAL);
  swell_close(session);
}

Test(swell_api, state_in_the_programs_own_memory_is_copied_at_a_switch, .timeout = 60) {
  for (const bool apart : {false, true}) {
    LiveJob job(SWELL_EXAMPLE, 2, {}, apart);
    std::vector<double> old_values(100'000), new_values(100'000);
    for (std::size_t i = 0; i < old_values.size(); ++i) old_values[i] = static_cast<double>(i);
    runtime::Coordinator::Options options;
    options.key = LiveJob::kKey;
    runtime::Coordinator coordinator(LiveJob::cluster(), options);
    int last = 0;
    std::thread old_program([&] {
      swell_session_t* session = adopt_own(job.keepers[0]->unix_socket(), old_values, nullptr);
      for (std::uint64_t step = 1; (last = swell_step(session, step)) == SWELL_GO_ON; ++step)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      swell_close(session);
    });
    const auto all = job.shims({1, 1, 2, 0});
    cr_assert(coordinator.begin({all[0]}, 1).ok());
    swell_generation_t generation{};
    std::thread new_program(
        [&] { swell_close(adopt_own(job.keepers[1]->unix_socket(), new_values, &generation)); });
    const auto report = coordinator.switch_plan({all[0]}, {all[1]}, 2).value();
    old_program.join();
    new_program.join();
    cr_assert(report.committed, "%s", report.summary().c_str());
    cr_assert_eq(last, SWELL_SWITCH);
    cr_assert(generation.generation == 2 && generation.step == report.step && !generation.fresh);
    cr_assert(new_values == old_values);
    cr_assert_eq(report.paths.size(), 1);
    cr_assert_eq(report.paths[0].path, apart ? "tcp" : "process_vm_readv");
    cr_assert_eq(report.paths[0].bytes, 800'000);
    cr_assert_eq(report.max_extra_bytes, 0);
  }
}

Test(swell_api, no_sequence_of_calls_without_its_shim_ends_the_program, .timeout = 60) {
  swell_session_t* session = nullptr;
  {
    LiveJob job(SWELL_EXAMPLE, 1, {});
    session = open_at(job.keepers[0]->unix_socket());
    swell_tensor_t w = tensor("w", 4);
    cr_assert_eq(swell_register(session, &w), 0);
  }
  cr_assert_eq(swell_adopt(session, nullptr), -ECONNRESET, "%s", swell_last_error(session));
  swell_close(session);
}

Test(swell_api, a_stable_profile_reaches_the_shim, .timeout = 240) {
  LiveJob job(SWELL_EXAMPLE, 1, {});
  runtime::Coordinator coordinator(LiveJob::cluster(), {});
  std::string told;
  std::thread program([&] {
    swell_session_t* session = open_at(job.keepers[0]->unix_socket());
    swell_tensor_t w = tensor("w", 1000), g = tensor("g", 1000);
    w.field_mask = g.field_mask = SWELL_TENSOR_LAYER | SWELL_TENSOR_KIND;
    g.kind = SWELL_GRADIENT;
    cr_assert_eq(swell_register(session, &w), 0);
    cr_assert_eq(swell_register(session, &g), 0);
    swell_region_t region{};
    cr_assert_eq(swell_region_begin(session, &region), -EAGAIN);
    cr_assert_eq(swell_adopt(session, nullptr), 0);
    swell_role_t role{};
    role.layers = 1;
    role.local_batch = 2;
    role.field_mask = SWELL_ROLE_ACTIVATION;
    role.activation_dtype = SWELL_BF16;
    role.activation_dims = 2;
    role.activation_shape[0] = 64;
    role.activation_shape[1] = 32;
    cr_assert_eq(swell_set_role(session, &role), 0);
    swell_times_t times;
    cr_assert_eq(swell_profile(session, &times), -EAGAIN);
    auto channel = runtime::Channel::connect_unix(job.keepers[0]->unix_socket()).value();
    // As long as it takes where others work too; passes this long keep the clock's noise small.
    // The reported times may be some steps old: the last ones may differ more again.
    const auto settled = [&] { return swell_profile(session, &times) == 0 && times.stable; };
    for (std::uint64_t step = 1; step < 2000 && !(settled() && !told.empty()); ++step) {
      for (const swell_region_kind_t kind : {SWELL_FORWARD, SWELL_BACKWARD}) {
        region.kind = kind;
        const int opened = swell_region_begin(session, &region);
        cr_assert_geq(opened, 0);
        std::this_thread::sleep_for(std::chrono::milliseconds(kind == SWELL_FORWARD ? 10 : 20));
        cr_assert_eq(swell_region_end(session, opened, 50000), 0);
        cr_assert_eq(swell_region_end(session, opened, 0), -EINVAL);
      }
      cr_assert_eq(swell_step(session, step), SWELL_GO_ON);
      if (told.empty()) told = ask(channel, runtime::Op::last_profile, {}).value().body;
    }
    cr_assert_eq(swell_profile(session, &times), 0);
    cr_assert(times.stable && times.micro_batches == 1);
    cr_assert_geq(times.forward_s, 0.010);
    swell_close(session);
  });
  cr_assert(coordinator.begin(job.shims({}), 1).ok());
  program.join();
  const auto profile = profiler::read_rank_profile(told);
  cr_assert(profile.ok());
  cr_assert_geq(profile->times.fwd_s, 0.010);
  cr_assert_geq(profile->times.bwd_s, 0.020);
  cr_assert_eq(profile->role.activ_bytes, 2 * 64 * 32);
  cr_assert_eq(profile->layer_param_bytes, 8000);
  cr_assert_eq(profile->layer_state_bytes, 8000);
  cr_assert_eq(profile->peak_bytes, 50000);
}

Test(swell_api, says_what_is_wrong_with_a_role_and_refuses_regions_that_are_none) {
  unsetenv("SWELL_RUNTIME");
  swell_session_t* session = nullptr;
  cr_assert_eq(swell_open(nullptr, &session), 0);
  cr_assert_eq(swell_adopt(session, nullptr), 0);
  swell_role_t role{};
  role.stage = -1;
  cr_assert_eq(swell_set_role(session, &role), -EINVAL);
  cr_assert_str_eq(swell_last_error(session), "stage is -1, group 0; both are 0 or more");
  role.stage = 0;
  cr_assert_eq(swell_set_role(session, &role), -EINVAL);
  cr_assert_str_eq(swell_last_error(session), "layers is 0, local_batch 0; both are 1 or more");
  role.layers = role.local_batch = 1;
  role.field_mask = SWELL_ROLE_ACTIVATION;
  cr_assert_eq(swell_set_role(session, &role), -EINVAL);
  cr_assert_str_eq(swell_last_error(session), "activation_dims is 0; it must be 1 to 8");
  const int chunks[] = {3, -2};
  role.field_mask = SWELL_ROLE_CHUNKS;
  role.chunks = chunks;
  cr_assert_eq(swell_set_role(session, &role), -EINVAL);
  cr_assert_str_eq(swell_last_error(session), "chunk_count is 0; 1 to 256 chunks can be said");
  role.chunk_count = 2;
  cr_assert_eq(swell_set_role(session, &role), -EINVAL);
  cr_assert_str_eq(swell_last_error(session), "a chunk has -2 units; 0 is the least");
  role.chunk_count = 1;
  cr_assert_eq(swell_set_role(session, &role), 0);
  swell_region_t region{};
  region.kind = static_cast<swell_region_kind_t>(99);
  cr_assert_eq(swell_region_begin(session, &region), -EINVAL);
  region.kind = SWELL_FORWARD;
  region.field_mask = SWELL_REGION_STREAM;
  cr_assert_eq(swell_region_begin(session, &region), -EINVAL, "a stream that is NULL");
  region.field_mask = SWELL_REGION_MICRO_BATCH;
  region.micro_batch = -1;
  cr_assert_eq(swell_region_begin(session, &region), -EINVAL);
  cr_assert_eq(swell_region_end(session, 0, 0), -EINVAL);
  swell_close(session);
}

Test(swell_api, only_the_program_that_trains_reports_a_profile) {
  LiveJob job(SWELL_EXAMPLE, 1, {});
  auto channel = runtime::Channel::connect_unix(job.keepers[0]->unix_socket()).value();
  const auto told = ask(channel, runtime::Op::profile, "anything");
  cr_assert_not(told.ok());
  cr_assert_eq(told.error().message(), "only the program that trains reports a profile");
  cr_assert_eq(ask(channel, runtime::Op::last_profile, {}).value().body, "");
}

Test(swell_api, a_tensor_on_a_gpu_is_refused_in_one_sentence_where_there_is_none) {
  setenv("STAND_IN_GPUS", "0", 1);
  // By the name that it has of its own, the runtime finds it from here on.
  cr_assert_not_null(dlopen(SWELL_STAND_IN_CUDA, RTLD_NOW));
  swell_session_t* session = open_at("");
  swell_tensor_t w = tensor("w", 8);
  w.field_mask = SWELL_TENSOR_DEVICE;
  cr_assert_eq(swell_register(session, &w), -ENODEV);
  cr_assert_str_eq(swell_last_error(session),
                   "tensor w: GPU 0: starting NVIDIA's driver: CUDA_ERROR_NO_DEVICE (100)");
  w.device = -1;
  cr_assert_eq(swell_register(session, &w), -EINVAL);
  cr_assert_str_eq(swell_last_error(session), "tensor w: device is below 0; GPUs count from 0");
  swell_close(session);
}

Test(swell_api, memory_of_ones_own_that_is_not_on_the_gpu_is_refused_in_one_sentence) {
  setenv("STAND_IN_GPUS", "2", 1);
  void* const driver = dlopen(SWELL_STAND_IN_CUDA, RTLD_NOW);
  cr_assert_not_null(driver);
  const auto push = reinterpret_cast<int (*)(void*)>(dlsym(driver, "cuCtxPushCurrent_v2"));
  const auto take =
      reinterpret_cast<int (*)(unsigned long long*, std::size_t)>(dlsym(driver, "cuMemAlloc_v2"));
  unsigned long long own = 0, others = 0;
  for (const auto& [gpu, address] : {std::pair(0, &own), {1, &others}}) {
    cr_assert_eq(push(reinterpret_cast<void*>(static_cast<std::intptr_t>(gpu + 1))), 0);
    cr_assert_eq(take(address, 64), 0);
  }
  swell_session_t* session = open_at("");
  swell_tensor_t w = tensor("w", 8);
  w.field_mask = SWELL_TENSOR_DEVICE | SWELL_TENSOR_ADDRESS;
  double host[8] = {};
  w.address = host;
  cr_assert_eq(swell_register(session, &w), -EINVAL);
  const std::string why = swell_last_error(session);
  cr_assert(why.starts_with("tensor w: GPU 0: 64 bytes at 0x") &&
                why.ends_with(" are not memory of a GPU"),
            "%s", why.c_str());
  w.address = reinterpret_cast<void*>(others);
  cr_assert_eq(swell_register(session, &w), -EINVAL);
  const std::string other = swell_last_error(session);
  cr_assert(other.ends_with(" are memory of GPU 1"), "%s", other.c_str());
  w.address = reinterpret_cast<void*>(own + 8);
  cr_assert_eq(swell_register(session, &w), -EINVAL, "it ends behind what was allocated");
  w.address = reinterpret_cast<void*>(own);
  cr_assert_eq(swell_register(session, &w), 0, "%s", swell_last_error(session));
  cr_assert_eq(swell_adopt(session, nullptr), 0, "%s", swell_last_error(session));
  void* at = nullptr;
  cr_assert_eq(swell_address(session, "w", 0, &at, nullptr), 0);
  cr_assert_eq(at, w.address);
  swell_close(session);
}

Test(swell_api, without_a_shim_a_tensor_on_a_gpu_is_the_programs_alone) {
  setenv("STAND_IN_GPUS", "2", 1);
  cr_assert_not_null(dlopen(SWELL_STAND_IN_CUDA, RTLD_NOW));
  swell_session_t* session = open_at("");
  swell_tensor_t w = tensor("w", 8), other = tensor("other", 8), host = tensor("host", 8);
  w.field_mask = other.field_mask = SWELL_TENSOR_DEVICE;
  cr_assert_eq(swell_register(session, &w), 0, "%s", swell_last_error(session));
  other.device = 1;
  cr_assert_eq(swell_register(session, &other), -ENODEV);
  cr_assert_str_eq(swell_last_error(session),
                   "tensor other: tensors of this session are on GPU 0 already; one GPU a session, "
                   "not GPU 1 too");
  cr_assert_eq(swell_register(session, &host), 0);
  cr_assert_eq(swell_adopt(session, nullptr), 0, "%s", swell_last_error(session));
  void *on_gpu = nullptr, *on_host = nullptr;
  cr_assert_eq(swell_address(session, "w", 0, &on_gpu, nullptr), 0);
  cr_assert_eq(swell_address(session, "host", 0, &on_host, nullptr), 0);
  cr_assert(on_gpu != on_host);
  cr_assert_eq(static_cast<double*>(on_gpu)[7], 0.0, "the stand-in's GPU is the host's memory");
  swell_close(session);
}
