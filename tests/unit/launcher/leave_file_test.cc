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

Test(leave_file, is_there_for_one_epoch_while_it_is_to_leave) {
  Temporary temporary;
  auto made = LeaveFile::make();
  cr_assert(made.has_value());
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

Test(leave_file, its_folder_is_removed_with_it_and_those_of_ended_processes_too) {
  Temporary temporary;
  const pid_t ended = fork();
  if (ended == 0) _exit(0);
  waitpid(ended, nullptr, 0);
  const fs::path old = temporary.path / fmt::format("swell-leaving-{}-abcdef", ended);
  const fs::path others = temporary.path / fmt::format("swell-leaving-{}-abcdef", getppid());
  fs::create_directory(old);
  fs::create_directory(others);
  {
    auto made = LeaveFile::make();
    cr_assert(made.has_value());
    made->set(0, true);
    cr_assert_not(fs::exists(old));
    cr_assert(fs::exists(others), "its process runs");
  }
  fs::remove(others);
  cr_assert(fs::is_empty(temporary.path));
}
