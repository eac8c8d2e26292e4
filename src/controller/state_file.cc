// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/state_file.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <sstream>
#include <unistd.h>

#include "core/json.h"

namespace swell::controller {

namespace {

Error failure(const std::string& path) { return Error(fmt::format("{}: {}", path, std::strerror(errno))); }

Result<void> write_synced(const std::string& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return failure(path);
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t written = ::write(fd, text.data() + done, text.size() - done);
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) break;
    done += static_cast<std::size_t>(written);
  }
  const bool good = done == text.size() && ::fsync(fd) == 0;
  const Error problem = failure(path);
  ::close(fd);
  if (!good) return problem;
  return {};
}

}  // namespace

Result<void> save_state(const std::string& path, const SavedState& state) {
  Json issued = Json::object();
  for (const auto& [nonce, parent] : state.issued) issued.set(nonce.c_str(), parent);
  const Json json = Json::object({{"version", 1}, {"issued", issued}});
  const std::string fresh = path + ".new";
  if (Result<void> written = write_synced(fresh, json.dump_pretty()); !written) return written;
  if (std::rename(fresh.c_str(), path.c_str()) != 0) return failure(path);
  return {};
}

Result<SavedState> load_state(const std::string& path) {
  std::ifstream in(path);
  if (!in && errno == ENOENT) return SavedState{};
  if (!in) return failure(path);
  std::ostringstream text;
  text << in.rdbuf();
  const Result<Json> json = Json::parse(text.str());
  if (!json) return json.error().while_doing(path);
  const Result<std::int64_t> version = json->integer_at("version", 1, 1);
  if (!version) return version.error().while_doing(path);
  SavedState state;
  const Json issued = json->at("issued");
  for (const auto& [nonce, parent] : issued.members()) {
    const Result<std::int64_t> id = issued.integer_at(nonce.c_str(), 1, std::numeric_limits<control::JobId>::max());
    if (!id) return id.error().while_doing(path);
    state.issued[nonce] = static_cast<control::JobId>(*id);
  }
  return state;
}

}  // namespace swell::controller
