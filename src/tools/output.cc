// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/output.h"

#include <cerrno>
#include <cstring>
#include <fcntl.h>
#include <unistd.h>

namespace swell::tools {

namespace {

/// Errno of the first write to standard output that failed; 0: none has.
int lost_by = 0;

void put(std::string_view text, std::FILE* to) {
  errno = 0;
  if (std::fwrite(text.data(), 1, text.size(), to) == text.size() || to != stdout) return;
  if (lost_by == 0) lost_by = errno != 0 ? errno : EIO;
}

}  // namespace

void write_text(std::string_view text, std::FILE* to) { put(control::printable_lines(text), to); }
void write_json(const Json& json) { put(pretty_text(json), stdout); }
void write_json_line(const Json& json) { put(ascii_text(json) + "\n", stdout); }

void complain(std::string_view sentence) {
  put("swell: " + control::printable(sentence, std::string_view::npos) + "\n", stderr);
}

int fail(const Error& error) {
  complain(error.message());
  return 1;
}

void hold_standard_files() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0)  // open() returns the lowest free descriptor, `fd`
      open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
}

int finish_output(int status) {
  errno = 0;
  if (std::fflush(stdout) != 0 && lost_by == 0) lost_by = errno != 0 ? errno : EIO;
  if (lost_by == 0 && std::ferror(stdout) != 0) lost_by = EIO;
  if (lost_by == 0) return status;
  complain(fmt::format("standard output: {}", std::strerror(lost_by)));
  return status == 0 ? 1 : status;
}

}  // namespace swell::tools
