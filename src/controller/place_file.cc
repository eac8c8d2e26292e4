// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/place_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <sstream>
#include <unistd.h>

#include "control/write_all.h"
#include "slurm/conf_file.h"

namespace swell::controller {

std::string state_folder(const std::string& slurm_conf) {
  if (const auto conf = slurm::SlurmConf::load(slurm_conf))
    if (const std::string* folder = conf->find("StateSaveLocation")) return *folder;
  return "/var/spool";
}

control::ExpansionPlace load_place(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path).rdbuf();
  return control::expansion_place_in(text.str());
}

Result<void> save_place(const std::string& path, const control::ExpansionPlace& place) {
  const std::string fresh = path + ".new";
  const int fd = ::open(fresh.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Error(fmt::format("{}: {}", fresh, std::strerror(errno)));
  const std::string text =
      fmt::format("ExpansionQOS={}\nExpansionPartition={}\n", place.qos, place.partition);
  const bool good = control::write_all(fd, text);
  const int problem = errno;
  ::close(fd);
  if (!good) return Error(fmt::format("{}: {}", fresh, std::strerror(problem)));
  if (std::rename(fresh.c_str(), path.c_str()) == 0) return {};
  return Error(fmt::format("{}: {}", path, std::strerror(errno)));
}

}  // namespace swell::controller
