// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>

/// Slurm refuses a plugin of another version with "Incompatible Slurm plugin", which does not say
/// what to do. So each of Swell's plugins looks by itself, when it is loaded and before Slurm
/// looks, and says it in Slurm's log. Linked into a plugin, version_check.cc does that by a
/// constructor; nothing needs to be called.
namespace swell::plugins {

/// "22.05.8" of Slurm's number 0x160508.
std::string version_text(std::uint32_t number);

/// The sentence for a plugin of one version in a Slurm of another; empty where it may be loaded: by
/// the same version, or, as Slurm allows `same_release_is_enough` (SPANK), by one of the same
/// release.
std::string version_problem(const std::string& plugin_file, std::uint32_t built_for,
                            std::uint32_t running, bool same_release_is_enough);

}  // namespace swell::plugins
