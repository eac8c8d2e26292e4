// SPDX-License-Identifier: GPL-2.0-or-later
// Any bytes as the controller's state file: an error that names the file, or a state that is saved
// and read back the same.
#include <cstdint>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <string>
#include <unistd.h>

#include "controller/state_file.h"

namespace {

/// A folder in memory, removed at the end.
struct Folder {
  std::string path;
  Folder() {
    char name[] = "/dev/shm/fuzz-XXXXXX";
    if (mkdtemp(name) == nullptr) std::abort();
    path = name;
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace swell::controller;
  static const Folder folder;
  static const std::string given = folder.path + "/given", saved = folder.path + "/saved";
  const int fd = open(given.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
  if (fd < 0 || write(fd, data, size) != static_cast<ssize_t>(size)) std::abort();
  close(fd);
  const auto state = load_state(given);
  if (!state) {
    if (state.error().message().find(given) == std::string::npos) std::abort();
    return 0;
  }
  if (!save_state(saved, *state)) std::abort();
  const auto again = load_state(saved);
  if (!again || !(*again == *state)) std::abort();
  return 0;
}
