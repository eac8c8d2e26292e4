// SPDX-License-Identifier: GPL-2.0-or-later
// swell profile: the profiler of one device, which is a part of the Python package.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fmt/format.h>
#include <string>
#include <unistd.h>
#include <vector>

#include "tools/commands.h"
#include "tools/output.h"

namespace swell::tools {

namespace {

/// Becomes `python3 -m swell.profile` with these words; returns where there is no such program.
int become_python(const std::vector<std::string>& words) {
  const char* chosen = std::getenv("SWELL_PYTHON");
  const std::string python = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
  std::vector<std::string> all = {python, "-m", "swell.profile"};
  all.insert(all.end(), words.begin(), words.end());
  std::vector<char*> pointers;
  for (std::string& word : all) pointers.push_back(word.data());
  pointers.push_back(nullptr);
  execvp(python.c_str(), pointers.data());
  return fail(Error(fmt::format(
      "{} cannot be run ({}); install Python with Swell's package, or let SWELL_PYTHON name it",
      python, std::strerror(errno))));
}

}  // namespace

Action add_profile(CLI::App& app) {
  CLI::App* sub = app.add_subcommand(
      "profile", "Measure on one device what the parts of a model take (python3 -m swell.profile)");
  sub->set_help_flag();  // the module has its own
  sub->prefix_command();
  return [sub] { return become_python(sub->remaining()); };
}

}  // namespace swell::tools
