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

/// Returns `value` as line_of() formats it: text goes through control::printable(), nothing else.
template <typename T>
decltype(auto) shown(const T& value) {
  if constexpr (std::is_convertible_v<const T&, std::string_view>)
    return control::printable(value, std::string_view::npos);
  else return static_cast<const T&>(value);
}

/// fmt::format() for people: an argument's text can neither begin a line nor control the terminal.
/// The format itself is Swell's own text.
template <typename... Args>
std::string line_of(fmt::format_string<const Args&...> format, const Args&... args) {
  return [&](const auto&... each) {
    return fmt::vformat(format, fmt::make_format_args(each...));
  }(shown(args)...);
}

/// Writes text that Swell made to standard output or error. Every subcommand writes through this
/// function: line feeds stay, and no other control character is written.
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
/// Writes the error like complain(). Returns the exit status 1.
int fail(const Error& error);

/// Makes sure that descriptors 0 to 2 are open, so that no file or socket of the program becomes
/// its standard output. A closed one still cannot be read or written.
void hold_standard_files();
/// Returns the exit status of a program that is about to end with `status`: not 0 if output to
/// standard output was lost, which it reports.
int finish_output(int status);

}  // namespace swell::tools
