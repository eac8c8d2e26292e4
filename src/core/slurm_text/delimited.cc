// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/slurm_text/delimited.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

namespace swell::slurm_text {

namespace {

constexpr std::string_view kBlanks = " \t";

void trim(std::string& cell) {
  cell.erase(0, std::min(cell.find_first_not_of(kBlanks), cell.size()));
  cell.erase(cell.find_last_not_of(kBlanks) + 1);
}

char separator_of(std::string_view text) {
  const std::string_view heading = text.substr(0, text.find_first_of("\r\n"));
  char best = ',';
  for (const char each : {';', '|', '\t'})
    if (std::ranges::count(heading, each) > std::ranges::count(heading, best)) best = each;
  return best;
}

/// Reads rows from the front of a text, one at a time.
class Reader {
 public:
  Reader(std::string_view text, char separator)
      : text_(text), separator_(separator), quotes_(separator != '|') {}

  bool done() const noexcept { return at_ >= text_.size(); }

  /// Reads a row. Returns false if its quotes are not closed.
  bool read(Delimited::Row& row) {
    row = {line_, {}};
    for (bool more = true; more;) {
      std::string cell;
      if (!read_cell(cell)) return false;
      row.cells.push_back(std::move(cell));
      more = !done() && text_[at_] == separator_;
      if (more) ++at_;
    }
    end_line();
    return true;
  }

 private:
  bool ends_cell(char c) const noexcept { return c == separator_ || c == '\n' || c == '\r'; }

  bool read_cell(std::string& cell) {
    while (!done() && text_[at_] == ' ') ++at_;
    if (quotes_ && !done() && text_[at_] == '"') return read_quoted(cell);
    while (!done() && !ends_cell(text_[at_])) cell += text_[at_++];
    trim(cell);
    return true;
  }

  bool read_quoted(std::string& cell) {
    for (++at_; !done(); ++at_) {
      if (text_[at_] != '"') {
        if (text_[at_] == '\n') ++line_;
        cell += text_[at_];
      } else if (at_ + 1 < text_.size() && text_[at_ + 1] == '"') {
        cell += text_[++at_];
      } else {
        ++at_;
        trim(cell);
        while (!done() && !ends_cell(text_[at_])) cell += text_[at_++];  // as in "4" GPUs
        trim(cell);
        return true;
      }
    }
    return false;
  }

  void end_line() {
    if (done()) return;
    if (text_[at_] == '\r' && at_ + 1 < text_.size() && text_[at_ + 1] == '\n') ++at_;
    ++at_;
    ++line_;
  }

  std::string_view text_;
  std::size_t at_ = 0, line_ = 1;
  char separator_;
  bool quotes_;
};

bool same(std::string_view a, std::string_view b) {
  return std::ranges::equal(
      a, b, [](unsigned char x, unsigned char y) { return std::tolower(x) == std::tolower(y); });
}

}  // namespace

Result<Delimited> Delimited::parse(std::string_view text) {
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);
  Delimited table;
  const std::size_t first = std::min(text.find_first_not_of(" \t\r\n"), text.size());
  Reader reader(text, separator_of(text.substr(first)));
  for (Row row; !reader.done();) {
    if (!reader.read(row))
      return Error(fmt::format("line {}: a cell begins with a quote that is not closed", row.line));
    if (row.cells.size() == 1 && row.cells[0].empty()) continue;
    if (table.heading_.cells.empty()) table.heading_ = std::move(row);
    else table.rows_.push_back(std::move(row));
  }
  if (first == text.size()) return Error("it is empty");
  if (table.heading_.cells.empty()) return Error("there is no header line");
  return table;
}

std::optional<std::size_t> Delimited::column(std::string_view name) const {
  for (std::size_t i = 0; i < heading_.cells.size(); ++i)
    if (same(heading_.cells[i], name)) return i;
  return std::nullopt;
}

}  // namespace swell::slurm_text
