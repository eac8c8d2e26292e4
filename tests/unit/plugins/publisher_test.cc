// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/spank/publisher.h"

#include <criterion/criterion.h>

using namespace swell::spank;

namespace {

std::vector<std::string> read(Settings& settings, std::vector<std::string> words) {
  std::vector<char*> arguments;
  for (std::string& word : words) arguments.push_back(word.data());
  return settings.read(static_cast<int>(arguments.size()), arguments.data());
}

}  // namespace

Test(publisher, reads_its_arguments) {
  Settings settings;
  cr_assert(read(settings,
                 {"topology=off", "topo_json=/etc/t/%n.json", "topo_retry=30", "control_port=7000"})
                .empty());
  cr_assert_eq(settings.control_port, 7000);
  cr_assert_not(settings.publish);
  cr_assert_eq(settings.topo_json, "/etc/t/%n.json");
  cr_assert_eq(settings.retry_s, 30);
}

Test(publisher, names_bad_arguments_and_keeps_its_defaults) {
  Settings settings;
  const auto problems =
      read(settings, {"topology=maybe", "topo_json=here", "topo_retry=x", "colour=red", ""});
  cr_assert_eq(problems.size(), 5u);
  cr_assert_eq(problems[0], "\"topology=maybe\": topology is on or off");
  cr_assert_eq(problems[3],
               "\"colour=red\" is not known; the arguments are topology, topo_json, topo_retry and "
               "control_port");
  cr_assert(settings.publish);
  cr_assert_eq(settings.retry_s, 600);
}

Test(publisher, finds_the_nodes_name_in_slurmds_command_line) {
  const auto parse = [](std::vector<std::string> words) { return SlurmdOptions::parse(words); };
  cr_assert_eq(parse({"slurmd", "-D", "-f", "/c", "-N", "n1"}).node, "n1");
  cr_assert_eq(parse({"slurmd", "-D", "-f", "/c", "-N", "n1"}).conf, "/c");
  cr_assert_eq(parse({"slurmd", "-Dvvv", "-Nn2"}).node, "n2");
  cr_assert_eq(parse({"slurmd", "-DN", "n3"}).node, "n3");
  cr_assert_eq(parse({"slurmd", "--conf-server", "host", "-L", "-N"}).node, "");
  cr_assert_eq(parse({"slurmd", "-N"}).node, "");
  cr_assert_eq(parse({}).node, "");
}

Test(publisher, a_missing_program_is_said) {
  cr_assert_eq(start_publisher({}, "/nowhere/swell"),
               "/nowhere/swell: No such file or directory; the node's topology is not published");
}
