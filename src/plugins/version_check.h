// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdint>
#include <string>

/// Slurm refuses a plugin of another version with "Incompatible Slurm plugin", which does not say
/// what to do. So each plugin of Swell checks the version itself when it is loaded, before Slurm
/// does, and explains a mismatch in Slurm's log. If version_check.cc is linked into a plugin, its
/// constructor does this; nothing must be called.
namespace swell::plugins {

/// Returns "22.05.8" for Slurm's number 0x160508.
std::string version_text(std::uint32_t number);

/// Returns the message for a plugin of one version in a Slurm of another; empty if it may be
/// loaded: by the same version, or with `same_release_is_enough` (as Slurm allows for SPANK) by a
/// version of the same release.
std::string version_problem(const std::string& plugin_file, std::uint32_t built_for,
                            std::uint32_t running, bool same_release_is_enough);

}  // namespace swell::plugins
