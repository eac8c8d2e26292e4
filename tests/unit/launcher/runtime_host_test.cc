// SPDX-License-Identifier: GPL-2.0-or-later
#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <sys/wait.h>
#include <unistd.h>

#include "launcher/runtime_host.h"

using namespace swell;
using namespace swell::launcher;
namespace fs = std::filesystem;

namespace {

pid_t ended_process() {
  const pid_t pid = fork();
  if (pid == 0) _exit(0);
  waitpid(pid, nullptr, 0);
  return pid;
}

std::unique_ptr<RuntimeHost> host_in(const std::string& folder) {
  RuntimeHost::Options options;
  options.folder = folder;
  options.address = "127.0.0.1";
  options.key = "a key of one job, 32 bytes long..";
  options.network = "tcp";
  auto host = RuntimeHost::start(options);
  cr_assert(host.ok(), "%s", host ? "" : host.error().message().c_str());
  return std::move(*host);
}

}  // namespace

// A UNIX socket's path has at most 107 bytes.
Test(runtime_host, a_tmpdir_that_is_long_or_not_there_is_done_without, .timeout = 60) {
  std::string folder = fs::temp_directory_path() / "swell-host-XXXXXX";
  cr_assert(mkdtemp(folder.data()) != nullptr);
  const std::string deep = folder + "/" + std::string(100, 'd');
  fs::create_directory(deep);
  for (const std::string& each : {deep, folder + "/none", std::string("here")}) {
    cr_assert_eq(setenv("TMPDIR", each.c_str(), 1), 0);
    const auto host = host_in("");
    cr_assert(host->unix_socket().starts_with("/tmp/"), "%s", host->unix_socket().c_str());
  }
  cr_assert_eq(setenv("TMPDIR", folder.c_str(), 1), 0);
  cr_assert(host_in("")->unix_socket().starts_with(folder));
  fs::remove_all(folder);
}

Test(runtime_host, removes_what_was_left_here_and_nothing_of_another_node, .timeout = 60) {
  std::string folder = fs::temp_directory_path() / "swell-host-XXXXXX";
  cr_assert(mkdtemp(folder.data()) != nullptr);
  const auto first = host_in(folder);
  // swell-worker-UID-PLACE-PID-RANDOM
  const std::string own = fs::path(first->unix_socket()).parent_path().filename();
  const auto pid = own.find(std::to_string(getpid()));
  const std::string gone = own.substr(0, pid) + std::to_string(ended_process()) + "-abcdef";
  std::string elsewhere = gone;
  char& digit = elsewhere[pid - 2];
  digit = digit == '0' ? '1' : '0';
  fs::create_directory(folder + "/" + gone);
  fs::create_directory(folder + "/" + elsewhere);
  const auto second = host_in(folder);
  cr_assert_not(fs::exists(folder + "/" + gone));
  cr_assert(fs::exists(folder + "/" + elsewhere), "its process may run on the other node");
  cr_assert(fs::exists(first->unix_socket()));
  fs::remove_all(folder);
}
