// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/spank/publisher.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <iterator>
#include <sys/wait.h>
#include <unistd.h>

namespace swell::spank {

namespace {

constexpr int kWatch = 3;  ///< descriptor by which the program notices that slurmd has ended

std::vector<std::string> own_command_line() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  const std::string all(std::istreambuf_iterator<char>(in), {});
  std::vector<std::string> words;
  for (std::size_t begin = 0; begin < all.size();) {
    const std::size_t end = std::min(all.find('\0', begin), all.size());
    words.push_back(all.substr(begin, end - begin));
    begin = end + 1;
  }
  return words;
}

std::string host_name() {
  char name[256] = "";
  gethostname(name, sizeof(name) - 1);
  return std::string(name).substr(0, std::string(name).find('.'));
}

std::vector<char*> pointers(std::vector<std::string>& words) {
  std::vector<char*> result;
  for (std::string& word : words) result.push_back(word.data());
  result.push_back(nullptr);
  return result;
}

/// Becomes the program. Between fork and exec nothing may be called that could wait for a lock of
/// slurmd's threads.
[[noreturn]] void become(const char* program, char** arguments, char** environment, int watch) {
  setsid();
  const pid_t inner = fork();
  if (inner != 0) _exit(inner < 0 ? 1 : 0);
  const int null = open("/dev/null", O_RDWR);
  dup2(null, STDIN_FILENO);
  dup2(null, STDOUT_FILENO);
  dup2(watch, kWatch);
  for (int fd = kWatch + 1; fd < 1024; ++fd) close(fd);
  if (chdir("/") != 0) _exit(1);
  execve(program, arguments, environment);
  _exit(127);
}

}  // namespace

std::vector<std::string> Settings::read(int count, char** arguments) {
  std::vector<std::string> problems;
  for (int i = 0; i < count; ++i) {
    const std::string word = arguments[i], key = word.substr(0, word.find('=')),
                      value = key.size() < word.size() ? word.substr(key.size() + 1) : "";
    int number = 0;
    const auto [end, problem] = std::from_chars(value.data(), value.data() + value.size(), number);
    const bool is_number = problem == std::errc{} && end == value.data() + value.size();
    const bool is_seconds = is_number && number >= 0 && number <= 86400;
    const bool is_port = is_number && number > 0 && number < 65536;
    if (key == "topology" && (value == "on" || value == "off")) publish = value == "on";
    else if (key == "topo_json" && value.starts_with('/')) topo_json = value;
    else if (key == "topo_retry" && is_seconds) retry_s = number;
    else if (key == "control_port" && is_port) control_port = number;
    else if (key == "topology")
      problems.push_back(fmt::format("\"{}\": topology is on or off", word));
    else if (key == "topo_json")
      problems.push_back(
          fmt::format("\"{}\": topo_json is an absolute path; %n in it is the node's name", word));
    else if (key == "topo_retry")
      problems.push_back(fmt::format("\"{}\": topo_retry is from 0 to 86400 seconds", word));
    else if (key == "control_port")
      problems.push_back(fmt::format("\"{}\": control_port is a port, as in swell.conf", word));
    else
      problems.push_back(
          fmt::format("\"{}\" is not known; the arguments are topology, topo_json, "
                      "topo_retry and control_port",
                      word));
  }
  return problems;
}

SlurmdOptions SlurmdOptions::parse(const std::vector<std::string>& arguments) {
  constexpr const char* with_value = "BdfLnN";
  SlurmdOptions options;
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (word.size() < 2 || word[0] != '-' || word[1] == '-') continue;
    for (std::size_t at = 1; at < word.size(); ++at) {
      if (std::strchr(with_value, word[at]) == nullptr) continue;
      const std::string value = at + 1 < word.size()       ? word.substr(at + 1)
                                : i + 1 < arguments.size() ? arguments[++i]
                                                           : "";
      if (word[at] == 'N') options.node = value;
      if (word[at] == 'f') options.conf = value;
      break;
    }
  }
  return options;
}

std::string start_publisher(const Settings& settings, const std::string& program) {
  if (access(program.c_str(), X_OK) != 0)
    return fmt::format("{}: {}; the node's topology is not published", program,
                       std::strerror(errno));
  const SlurmdOptions slurmd = SlurmdOptions::parse(own_command_line());
  std::vector<std::string> arguments{program,
                                     "topo",
                                     "--publish",
                                     "--retry",
                                     std::to_string(settings.retry_s),
                                     "--watch",
                                     std::to_string(kWatch)};
  if (!slurmd.node.empty()) arguments.insert(arguments.end(), {"--node", slurmd.node});
  if (!settings.topo_json.empty()) {
    std::string file = settings.topo_json;
    const std::string name = slurmd.node.empty() ? host_name() : slurmd.node;
    for (std::size_t at = file.find("%n"); at != file.npos; at = file.find("%n", at + name.size()))
      file.replace(at, 2, name);
    arguments.insert(arguments.end(), {"--description", file});
  }
  std::vector<std::string> environment;
  for (char** each = environ; *each != nullptr; ++each)
    if (slurmd.conf.empty() || std::strncmp(*each, "SLURM_CONF=", 11) != 0)
      environment.emplace_back(*each);
  if (!slurmd.conf.empty()) environment.push_back("SLURM_CONF=" + slurmd.conf);
  std::vector<char*> argv = pointers(arguments), envp = pointers(environment);

  // Slurmd's end of the pipe closes when slurmd ends. An earlier program, from before a
  // reconfiguration, ends when its pipe is closed.
  static int held = -1;
  if (held >= 0) close(held);
  held = -1;
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return fmt::format("pipe: {}", std::strerror(errno));
  const pid_t child = fork();
  if (child == 0) become(program.c_str(), argv.data(), envp.data(), ends[0]);
  const int problem = errno;
  close(ends[0]);
  if (child < 0) {
    close(ends[1]);
    return fmt::format("fork: {}", std::strerror(problem));
  }
  held = ends[1];
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) continue;
  return {};
}

}  // namespace swell::spank
