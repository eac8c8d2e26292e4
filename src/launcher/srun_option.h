// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <span>
#include <string_view>

namespace swell::launcher {

/// One of srun's options: how it is written, and what an elastic run does with it.
struct SrunOption {
  enum class Argument { none, required, optional };
  enum class Use {
    each,      ///< given to the step of every allocation
    basic,     ///< given to the basic demand's step only: it chooses or limits what is allocated
    layout,    ///< read: how many workers, with what, where
    left_out,  ///< useless, since a worker starts the program: not passed on
    plain      ///< has no meaning for workers of swellrun: everything is left to srun
  };
  char letter = 0;  ///< 0: it has a long name only
  std::string_view name;
  Argument argument = Argument::none;
  Use use = Use::each;
};

/// Every option of srun from 22.05 to 26.05 that concerns a step or may stand before the program.
std::span<const SrunOption> srun_options();

/// Finds an option by its name or an unambiguous prefix, as getopt_long() does; null: unknown.
const SrunOption* find_option(std::string_view long_name);
const SrunOption* find_option(char letter);

}  // namespace swell::launcher
