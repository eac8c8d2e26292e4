// SPDX-License-Identifier: GPL-2.0-or-later
// swell profile: runs the one-device profiler, which is part of the Python package.
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "tools/commands.h"
#include "tools/output.h"

namespace swell::tools {

namespace {

/// Exit status of kProbe if Python lacks Swell's package.
constexpr int kLacksPackage = 43;
constexpr const char* kProbe = R"(
import importlib.util, sys
try:
    found = importlib.util.find_spec('swell.profile')
except ModuleNotFoundError:
    found = None
sys.exit(0 if found else 43))";

/// Returns whether `python` runs and does not find Swell's package.
bool lacks_package(const std::string& python) {
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
    for (int each = 0; each < 3; ++each) dup2(null, each);
    execlp(python.c_str(), python.c_str(), "-c", kProbe, static_cast<char*>(nullptr));
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {}
  return WIFEXITED(status) && WEXITSTATUS(status) == kLacksPackage;
}

/// Becomes `python3 -m swell.profile` with these words. Returns only if there is no such program,
/// or it lacks the package.
int become_python(const std::vector<std::string>& words) {
  const char* chosen = std::getenv("SWELL_PYTHON");
  const std::string python = chosen != nullptr && *chosen != '\0' ? chosen : "python3";
  if (lacks_package(python))
    return fail(Error(fmt::format(
        "{} has no package \"swell\": install it there (pip install ./python in Swell's "
        "source), or let SWELL_PYTHON name a Python that has it",
        python)));
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
