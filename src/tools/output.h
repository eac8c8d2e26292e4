// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <cstdio>
#include <fmt/format.h>
#include <string>
#include <string_view>
#include <type_traits>

#include "control/printable.h"
#include "core/error.h"
#include "core/json.h"

namespace swell::tools {

/// `value` as line_of() formats it: text through control::printable(), all else as it is.
template <typename T>
decltype(auto) shown(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return control::printable(value, std::string_view::npos);
  else return static_cast<const T&>(value);
}

/// fmt::format() for people: whatever an argument says, it begins no line and commands no
/// terminal. The format itself is Swell's own text.
template <typename... Args>
std::string line_of(fmt::format_string<const Args&...> format, const Args&... args) {
  return [&](const auto&... each) {
    return fmt::vformat(format, fmt::make_format_args(each...));
  }(shown(args)...);
}

/// Writes text that Swell put together to standard output or error. Every subcommand writes through
/// it: line feeds stay, and no other control character passes.
void write_text(std::string_view text, std::FILE* to = stdout);
void write_json(const Json& json);
void write_json_line(const Json& json);

/// Writes line_of() to standard output.
template <typename... Args>
void say(fmt::format_string<const Args&...> format, const Args&... args) {
  write_text(line_of(format, args...));
}

/// Writes "swell: ..." as one line to standard error.
void complain(std::string_view sentence);
/// The same; returns the exit status 1.
int fail(const Error& error);

/// Makes sure that descriptors 0 to 2 are open, so that no file or socket of the program becomes
/// its standard output: a closed one stays one that cannot be read or written.
void hold_standard_files();
/// Exit status of a program that is about to end with `status`: not 0 where something that it wrote
/// to standard output was lost, which is said.
int finish_output(int status);

}  // namespace swell::tools
