// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/swell.h"

#include <cerrno>
#include <criterion/criterion.h>
#include <cstring>
#include <thread>

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
                           swell_epoch_t* epoch) {
  swell_session_t* session = open_at(socket);
  swell_tensor_t own = tensor("w", static_cast<std::int64_t>(values.size()));
  own.field_mask = SWELL_TENSOR_ADDRESS;
  own.address = values.data();
  cr_assert_eq(swell_register(session, &own), 0, "%s", swell_last_error(session));
  cr_assert_eq(swell_adopt(session, epoch), 0, "%s", swell_last_error(session));
  return session;
}

}  // namespace

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
  swell_epoch_t epoch;
  cr_assert_eq(swell_adopt(session, &epoch), 0);
  cr_assert(epoch.fresh && epoch.epoch == 0 && epoch.step == 0);
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

Test(swell_api, says_which_value_is_wrong) {
  unsetenv("SWELL_RUNTIME");
  swell_session_t* session = nullptr;
  cr_assert_eq(swell_open(nullptr, nullptr), -EINVAL);
  swell_open_params_t nowhere{SWELL_OPEN_SOCKET, "/nowhere/socket"};
  cr_assert_eq(swell_open(&nowhere, &session), -ECONNREFUSED);
  cr_assert_str_eq(swell_last_error(nullptr),
                   "connecting to /nowhere/socket: No such file or directory");
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
    swell_epoch_t epoch{};
    std::thread new_program(
        [&] { swell_close(adopt_own(job.keepers[1]->unix_socket(), new_values, &epoch)); });
    const auto report = coordinator.switch_plan({all[0]}, {all[1]}, 2).value();
    old_program.join();
    new_program.join();
    cr_assert(report.committed, "%s", report.summary().c_str());
    cr_assert_eq(last, SWELL_SWITCH);
    cr_assert(epoch.epoch == 2 && epoch.step == report.step && !epoch.fresh);
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
