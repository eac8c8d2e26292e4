// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/files.h"

#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <iostream>
#include <iterator>

namespace swell::tools {

Result<std::string> read_file(const std::string& path) {
  if (path == "-") return std::string(std::istreambuf_iterator<char>(std::cin), {});
  std::ifstream in(path, std::ios::binary);
  if (!in) return Error(fmt::format("{}: {}", path, std::strerror(errno)));
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (in.bad()) return Error(fmt::format("{}: it cannot be read", path));
  return text;
}

Result<Json> read_json(const std::string& path) {
  auto text = read_file(path);
  if (!text) return text.error();
  auto json = Json::parse(*text);
  if (!json) return json.error().while_doing(path);
  return json;
}

Result<void> write_file(const std::string& path, const std::string& text) {
  if (path == "-") {
    std::cout << text << std::flush;
    return {};
  }
  std::ofstream out(path, std::ios::binary | std::ios::trunc);
  if (!out) return Error(fmt::format("{}: {}", path, std::strerror(errno)));
  out << text << std::flush;
  if (!out) return Error(fmt::format("{}: it cannot be written", path));
  return {};
}

int fail(const Error& error) {
  std::fprintf(stderr, "swell: %s\n", error.message().c_str());
  return 1;
}

}  // namespace swell::tools
