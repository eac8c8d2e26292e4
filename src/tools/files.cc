// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/files.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>

#include "control/input_file.h"
#include "tools/output.h"

namespace swell::tools {

Result<std::string> read_file(const std::string& path) {
  if (path != "-") return control::read_regular(path);
  std::string text;
  char part[1 << 16];
  while (const std::size_t got = std::fread(part, 1, sizeof part, stdin)) {
    text.append(part, got);
    if (text.size() > control::kMaxInput)
      return Error(fmt::format("standard input has more than {} bytes; no more are read",
                               control::kMaxInput));
  }
  if (std::ferror(stdin) != 0) return Error("standard input cannot be read");
  return text;
}

Result<Json> read_json(const std::string& path) {
  auto text = read_file(path);
  if (!text) return text.error();
  auto json = Json::parse(*text);
  if (!json) return json.error().while_doing(path);
  return json;
}

bool is_file(const std::string& name) {
  std::error_code ignored;
  return name == "-" || std::filesystem::exists(name, ignored);
}

Result<void> write_file(const std::string& path, const std::string& text) {
  if (path == "-") {
    write_text(text);
    return {};
  }
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out) return Error(fmt::format("{}: {}", path, std::strerror(errno)));
  out << text << std::flush;
  if (!out) return Error(fmt::format("{}: it cannot be written", path));
  return {};
}

}  // namespace swell::tools
