// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/output.h"

#include <criterion/criterion.h>
#include <string>
#include <vector>

#include "tools/doctor/finding.h"
#include "tools/history_rows.h"
#include "tools/text_table.h"
#include "tools/text_width.h"

using namespace swell;
using namespace swell::tools;

namespace {

/// Output of a hostile user: escapes, a forged line, bytes that are not UTF-8, an override.
const std::string kHostile = "\x1b[31m\a\r\nroot\xff\u202e\u009b";

/// Whether a terminal gets no more from it than lines of `lines` line ends.
bool is_harmless(const std::string& text, long lines) {
  for (const char c : text)
    if (c != '\n' && (static_cast<unsigned char>(c) < 0x20 || c == 0x7f)) return false;
  return std::count(text.begin(), text.end(), '\n') == lines &&
         text.find("\u202e") == std::string::npos && text.find("\u009b") == std::string::npos &&
         text.find('\xff') == std::string::npos;
}

}  // namespace

Test(output, an_argument_neither_begins_a_line_nor_commands_a_terminal) {
  const std::string line = line_of("Job {}: {}\n", 7, kHostile);
  cr_assert_eq(line, "Job 7: \\x1b[31m\\x07\\x0d\\x0aroot\\xff\\u202e\\x9b\n");
  cr_assert(is_harmless(line_of("{}|{}\n", kHostile.c_str(), std::string_view(kHostile)), 1));
  cr_assert_eq(line_of("{:>5} {:<4}|{:.1f}\n", "ab", 3, 0.25), "   ab 3   |0.2\n");
}

Test(output, a_cell_of_a_table_forges_no_row) {
  TextTable table({{"NAME"}, {"GPUS", TextTable::Align::right}});
  table.add({"one\n  99999  root  forged", "4"});
  table.add({kHostile, "4"});
  cr_assert(is_harmless(table.text(), 3), "%s", table.text().c_str());
}

Test(output, columns_are_as_wide_as_a_terminal_shows_them) {
  cr_assert_eq(columns_of("naïve"), 5u);
  cr_assert_eq(columns_of("模型"), 4u);
  cr_assert_eq(columns_of("e\u0301"), 1u);
  cr_assert_eq(cut_to("模型x", 3), "模");
  cr_assert_eq(cut_to("naïve", 3), "naï");
  TextTable table({{"NAME"}, {"N", TextTable::Align::right}});
  table.add({"naïve 模型", "4"});
  table.add({"plain", "12"});
  cr_assert_eq(table.text(), "NAME         N\nnaïve 模型   4\nplain       12\n", "%s",
               table.text().c_str());
}

Test(output, history_and_findings_show_what_others_wrote) {
  const Json event = Json::object(
      {{"time", 0}, {"event", "reclaim"}, {"gpus", 4}, {"node", kHostile}, {"reason", kHostile}});
  const Json history = Json::object({{"events", Json::array({event})}});
  cr_assert(is_harmless(history_table(history), 2));
  for (const std::string& line : last_changes(history, 6)) cr_assert(is_harmless(line, 0));
  cr_assert(is_harmless(
      doctor::findings_text({doctor::fault("qos", kHostile, {"scontrol " + kHostile})}), 3));
}
