// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/event_log.h"

#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace swell::controller {

void EventLog::event(const char* name, std::initializer_list<std::pair<const char*, Json>> members,
                     const std::string& sentence) {
  if (!sentence.empty()) log_(sentence);
  if (path_.empty()) return;
  const double now = std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  Json line = Json::object({{"time", std::round(now * 1000) / 1000}, {"event", name}});
  for (const auto& [key, value] : members) line.set(key, value);
  const std::string text = line.dump() + "\n";
  // Opened for each line, so that logrotate needs no signal; one write() keeps lines whole.
  const int fd = ::open(path_.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
  const bool good = fd >= 0 && ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size());
  if (!good && !complained_) log_(fmt::format("EventLog={}: {}; events are not kept", path_, std::strerror(errno)));
  complained_ = !good;
  if (fd >= 0) ::close(fd);
}

}  // namespace swell::controller
