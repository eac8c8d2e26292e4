// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/api/session_profile.h"

#include <chrono>
#include <string>
#include <utility>

#include "runtime/api/session.h"
#include "runtime/state/state_profile.h"

namespace swell::runtime {

std::optional<profiler::RankProfile> SessionProfile::latest() const {
  if (!role_ || !profiler_.latest()) return std::nullopt;
  auto profile = profile_of(*role_, *profiler_.latest(), profiler_.micro_batches(),
                            session_.entries_, profiler_.recorder().peak_bytes());
  profile.nccl = profiler_.nccl();
  profile.nodes = profiler_.nodes();
  return profile;
}

Result<void> SessionProfile::report(const profiler::RankProfile& profile) {
  if (!session_.channel_) return {};
  const auto tell = [&](Op op, std::string body) {
    return session_.ask_shim(op, std::move(body), within(std::chrono::seconds(10)));
  };
  const std::string brief = profiler::write_for_older(profile), whole = profiler::write(profile);
  auto told = tell(whole == brief ? Op::profile : Op::node_profile, whole);
  if (!told && !session_.is_lost_ && whole != brief) told = tell(Op::profile, brief);
  if (!told && session_.is_lost_) return told.error();
  return {};
}

Result<void> SessionProfile::observe(std::uint64_t step) {
  if (!profiler_.boundary(step) || !role_) return {};
  const auto profile = latest();
  return profile ? report(*profile) : Result<void>();
}

}  // namespace swell::runtime
