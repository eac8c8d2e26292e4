// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/processes.h"

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>

namespace swell::launcher {

namespace {

std::string proc(pid_t pid, const char* file) {
  return "/proc/" + std::to_string(pid) + "/" + file;
}

/// Returns the strings of a file, each of which ends in a zero byte.
std::vector<std::string> texts_in(const std::string& path) {
  std::vector<std::string> texts;
  std::ifstream file(path, std::ios::binary);
  for (std::string each; std::getline(file, each, '\0');) texts.push_back(std::move(each));
  return texts;
}

}  // namespace

std::vector<pid_t> children_of(pid_t pid) {
  std::vector<pid_t> children;
  std::error_code gone;
  for (auto task = std::filesystem::directory_iterator(proc(pid, "task"), gone);
       !gone && task != std::filesystem::directory_iterator(); task.increment(gone)) {
    std::ifstream list(task->path() / "children");
    for (pid_t child; list >> child;) children.push_back(child);
  }
  return children;
}

bool has_signal_in(pid_t pid, const char* set, int signal) {
  std::ifstream status(proc(pid, "status"));
  for (std::string line; std::getline(status, line);)
    if (line.starts_with(set))
      return (std::strtoull(line.c_str() + std::strlen(set), nullptr, 16) >> (signal - 1) & 1) != 0;
  return false;
}

std::vector<std::string> environment_of(pid_t pid) { return texts_in(proc(pid, "environ")); }

std::vector<std::string> command_of(pid_t pid) { return texts_in(proc(pid, "cmdline")); }

std::string name_of(pid_t pid) {
  std::ifstream file(proc(pid, "comm"), std::ios::binary);
  std::string name;
  std::getline(file, name);
  // PyTorch names the main threads of its programs, such as torchrun's and a data loader's.
  if (name == "pt_elastic") return "torchrun";
  if (name.starts_with("pt_"))
    if (const auto command = command_of(pid); !command.empty() && !command.front().empty())
      name = command.front().substr(command.front().rfind('/') + 1);
  for (char& each : name)
    if (each < 0x20 || each > 0x7e) each = '?';
  return name;
}

}  // namespace swell::launcher
