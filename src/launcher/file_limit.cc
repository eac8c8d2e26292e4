// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/file_limit.h"

#include "core/count_of.h"

#include <algorithm>
#include <fmt/format.h>
#include <sys/resource.h>

namespace swell::launcher {

namespace {

/// Files kept for the standard streams, for the server, the link and munge, and for a pipe to each
/// child whose output is captured.
constexpr std::int64_t kReserved = 128;
constexpr std::int64_t kMaxStrangers = 256;
constexpr std::int64_t kMinStrangers = 16;
/// At least this many strangers per address, if the total allows it: with fewer, strangers on a
/// node could displace its workers before these say which worker they are.
constexpr int kOfOneAddress = 128;

rlimit& first_limit() noexcept {
  static rlimit limit{RLIM_INFINITY, RLIM_INFINITY};
  return limit;
}
bool raised = false;

}  // namespace

std::uint64_t raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return 1024;
  if (!raised) first_limit() = limit;
  raised = true;
  const rlimit highest{limit.rlim_max, limit.rlim_max};
  return setrlimit(RLIMIT_NOFILE, &highest) == 0 ? limit.rlim_max : limit.rlim_cur;
}

void restore_file_limit() noexcept {
  if (raised) setrlimit(RLIMIT_NOFILE, &first_limit());
}

FileBudget file_budget(std::uint64_t limit, int workers, int on_one_node) {
  const std::int64_t all = static_cast<std::int64_t>(std::min<std::uint64_t>(limit, 1'000'000));
  const std::int64_t left = all - kReserved - workers;
  FileBudget budget;
  budget.max_strangers = static_cast<int>(
      std::clamp(left / 2, kMinStrangers, std::max<std::int64_t>(kMaxStrangers, workers)));
  // All workers of a node may connect at the same moment, and again if the node is slow.
  budget.max_strangers_per_address = std::clamp(
      2 * on_one_node, std::min(kOfOneAddress, budget.max_strangers), budget.max_strangers);
  budget.max_connections =
      static_cast<int>(std::max<std::int64_t>(workers + budget.max_strangers, all - kReserved));
  if (left < kMinStrangers)
    budget.problem = fmt::format(
        "{} need {} on this machine, {} are allowed: raise the hard limit (ulimit -Hn) where the job script runs",
        count_of(workers, "worker"), count_of(workers + kReserved + kMinStrangers, "open file"),
        all);
  return budget;
}

}  // namespace swell::launcher
