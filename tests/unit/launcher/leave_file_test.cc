// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/leave_file.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace swell::launcher;
namespace fs = std::filesystem;

namespace {

/// A folder that is TMPDIR.
struct Temporary {
  Temporary() {
    char name[] = "/tmp/swell-test-XXXXXX";
    cr_assert_not_null(mkdtemp(name));
    path = name;
    setenv("TMPDIR", name, 1);
  }
  ~Temporary() { fs::remove_all(path); }
  fs::path path;
};

}  // namespace

Test(leave_file, is_there_for_one_generation_while_it_is_to_leave) {
  Temporary temporary;
  auto made = LeaveFile::make();
  cr_assert(made.ok());
  const LeaveFile file = std::move(*made);
  cr_assert_not(fs::exists(file.path(3)));
  file.set(3, true);
  cr_assert(fs::exists(file.path(3)));
  cr_assert_not(fs::exists(file.path(4)));
  file.set(3, false);
  cr_assert_not(fs::exists(file.path(3)));
  cr_assert((fs::status(fs::path(file.path(3)).parent_path()).permissions() & fs::perms::mask) ==
            fs::perms::owner_all);
}

Test(leave_file, its_folder_is_removed_with_it_and_those_of_ended_processes_of_this_node_too) {
  Temporary temporary;
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  waitpid(ended, nullptr, 0);
  {
    const auto first = LeaveFile::make();
    cr_assert(first.ok());
    // swell-leaving-UID-PLACE-PID-RANDOM
    const std::string own = fs::path(first->path(0)).parent_path().filename();
    const auto pid = own.find(std::to_string(getpid()));
    const auto folder_of = [&](pid_t process) {
      return temporary.path / fmt::format("{}{}-abcdef", own.substr(0, pid), process);
    };
    const fs::path old = folder_of(ended), others = folder_of(getppid());
    std::string elsewhere = old.filename();
    char& digit = elsewhere[pid - 2];
    digit = digit == '0' ? '1' : '0';
    const fs::path of_other_node = temporary.path / elsewhere;
    for (const fs::path& each : {old, others, of_other_node}) fs::create_directory(each);
    auto made = LeaveFile::make();
    cr_assert(made.ok());
    made->set(0, true);
    cr_assert_not(fs::exists(old));
    cr_assert(fs::exists(others), "its process runs");
    cr_assert(fs::exists(of_other_node),
              "its process may run there: TMPDIR may be one of all nodes");
    cr_assert(fs::exists(fs::path(first->path(0)).parent_path()));
    fs::remove(others);
    fs::remove(of_other_node);
  }
  cr_assert(fs::is_empty(temporary.path));
}

Test(leave_file, a_tmpdir_that_is_not_there_is_done_without) {
  Temporary temporary;
  for (const std::string& each : {(temporary.path / "none").string(), std::string("here")}) {
    setenv("TMPDIR", each.c_str(), 1);
    const auto made = LeaveFile::make();
    cr_assert(made.ok(), "%s", each.c_str());
    cr_assert(made->path(1).starts_with("/tmp/swell-leaving-"), "%s", made->path(1).c_str());
  }
}
