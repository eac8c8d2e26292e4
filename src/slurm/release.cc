// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm/release.h"

#include <charconv>
#include <utility>

namespace swell::slurm {

namespace {

using Release = std::pair<unsigned, unsigned>;

Release release_of(std::string_view version) noexcept {
  Release release{};
  const char* const end = version.data() + version.size();
  const auto major = std::from_chars(version.data(), end, release.first);
  if (major.ptr != end && *major.ptr == '.') std::from_chars(major.ptr + 1, end, release.second);
  return release;
}

}  // namespace

bool has_preempt_parameters(std::string_view version) noexcept {
  return release_of(version) >= Release{23, 2};
}

bool higher_tiers_hold_companions_up(std::string_view version) noexcept {
  return release_of(version) > Release{22, 5};
}

bool changes_gpu_types(std::string_view version) noexcept {
  return release_of(version) >= Release{24, 11};
}

}  // namespace swell::slurm
