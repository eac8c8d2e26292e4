// SPDX-License-Identifier: GPL-2.0-or-later
#include "private_munge.h"

#include <chrono>
#include <criterion/criterion.h>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <pwd.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "control/munge_thread.h"

namespace swell::test {

namespace {

const char* program() {
  for (const char* path : {"/usr/sbin/munged", "/usr/local/sbin/munged", "/usr/bin/munged"})
    if (access(path, X_OK) == 0) return path;
  return nullptr;
}

/// munged refuses a key that is another user's; as root it runs under its own user.
const passwd* munge_user() { return geteuid() == 0 ? getpwnam("munge") : nullptr; }

bool answers(const std::string& socket) {
  auto munge = control::MungeThread::start(socket);
  cr_assert(munge.ok());
  (*munge)->seal(1, "hello", std::nullopt);
  const auto done = (*munge)->wait(1, std::chrono::seconds(30));
  return done && !done->error;
}

}  // namespace

PrivateMunge::PrivateMunge() {
  const char* munged = program();
  if (munged == nullptr) cr_skip_test("munged is not installed (Debian: munge)");
  std::string pattern = (std::filesystem::temp_directory_path() / "swell-munge-XXXXXX").string();
  cr_assert_not_null(mkdtemp(pattern.data()));
  folder_ = pattern;
  socket_ = folder_ + "/socket";
  std::ofstream(folder_ + "/key") << std::string(64, 'k');
  chmod((folder_ + "/key").c_str(), 0400);
  chmod(folder_.c_str(), 0755);
  if (const passwd* user = munge_user())
    for (const std::string& path : {folder_, folder_ + "/key"})
      cr_assert_eq(chown(path.c_str(), user->pw_uid, user->pw_gid), 0);
  run();
}

void PrivateMunge::run() {
  const char* munged = program();
  const passwd* user = munge_user();
  const std::string key = "--key-file=" + folder_ + "/key", socket = "--socket=" + socket_,
                    pid = "--pid-file=" + folder_ + "/pid", log = "--log-file=" + folder_ + "/log",
                    seed = "--seed-file=" + folder_ + "/seed";
  const uid_t uid = user != nullptr ? user->pw_uid : geteuid();
  const gid_t gid = user != nullptr ? user->pw_gid : getegid();
  pid_ = fork();
  cr_assert_geq(pid_, 0);
  if (pid_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (user != nullptr && (setgid(gid) != 0 || setuid(uid) != 0)) _exit(126);
    const int null = open("/dev/null", O_RDWR);
    for (int fd = 0; fd < 3; ++fd) dup2(null, fd);
    execl(munged, "munged", "--foreground", "--force", "--num-threads=2", key.c_str(),
          socket.c_str(), pid.c_str(), log.c_str(), seed.c_str(), static_cast<char*>(nullptr));
    _exit(127);
  }
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(30);
  while (!std::filesystem::exists(socket_) || !answers(socket_)) {
    cr_assert_lt(std::chrono::steady_clock::now().time_since_epoch().count(),
                 deadline.time_since_epoch().count(), "munged did not come up");
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
}

void PrivateMunge::restart() {
  std::filesystem::remove(socket_);
  run();
}

PrivateMunge::~PrivateMunge() {
  signal(SIGKILL);
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

void PrivateMunge::signal(int number) {
  if (pid_ <= 0) return;
  kill(pid_, number);
  if (number != SIGKILL) return;
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

}  // namespace swell::test
