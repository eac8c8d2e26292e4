// SPDX-License-Identifier: GPL-2.0-or-later
// swell speeds: prints what --elastic=table=FILE sends from a table; the SPANK plugin runs it.
#include <memory>
#include <string>

#include "control/speed_table.h"
#include "tools/commands.h"
#include "tools/output.h"

namespace swell::tools {

Action add_speeds(CLI::App& app) {
  CLI::App* sub = app.add_subcommand(
      "speeds", "Print what --elastic=table=FILE sends along, or what is wrong with the file");
  const auto file = std::make_shared<std::string>();
  sub->add_option("file", *file, "as swell plan --grid --json writes it")->required();
  return [file] {
    const auto table = control::SpeedTable::from_file(*file);
    if (!table) return fail(table.error());
    say("{}\n", table->text());
    return 0;
  };
}

}  // namespace swell::tools
