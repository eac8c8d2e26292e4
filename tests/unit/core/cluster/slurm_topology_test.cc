// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/cluster/slurm_topology.h"

#include <criterion/criterion.h>
#include <random>

using namespace swell;
using namespace swell::cluster;

namespace {

std::string refused(const char* text) {
  const auto read = SlurmTopology::parse(text);
  cr_assert_not(read.ok(), "%s", text);
  return read.error().message();
}

}  // namespace

Test(slurm_topology, reads_a_tree) {
  const SlurmTopology read = SlurmTopology::parse(
                                 "# a site\n"
                                 "switchname=leaf1 Nodes=n[1-4]  # rack 1\n"
                                 "SwitchName=leaf2 \\\n  Nodes=n[5-8] LinkSpeed=100\n"
                                 "SwitchName=spine Switches=leaf[1-2]\n")
                                 .value();
  cr_assert_eq(read.kind, SlurmTopology::Kind::tree);
  cr_assert_eq(read.groups.size(), 3u);
  cr_assert_eq(read.groups[1].nodes.size(), 4u);
  cr_assert_eq(read.groups[1].parent, 2);
  cr_assert_eq(read.groups[2].height, 2);
}

Test(slurm_topology, reads_blocks_and_nests_them_by_their_sizes) {
  const SlurmTopology read =
      SlurmTopology::parse(
          "BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-8]\nBlockName=b3 Nodes=n[9-12]\n"
          "BlockName=b4 Nodes=n[13-16]\nBlockName=b5 Nodes=n17\nBlockSizes=4,8,16\n")
          .value();
  cr_assert_eq(read.kind, SlurmTopology::Kind::block);
  cr_assert_eq(read.groups.size(), 5u + 3u + 2u);
  cr_assert_eq(read.groups[0].parent, read.groups[1].parent);
  cr_assert_neq(read.groups[1].parent, read.groups[2].parent);
  cr_assert_eq(read.groups[5].parent, read.groups[6].parent);
  cr_assert_eq(read.groups[8].height, 3);
}

Test(slurm_topology, later_forms_are_noted_not_refused) {
  const SlurmTopology yaml = SlurmTopology::parse("---\n- topology: default\n").value();
  cr_assert_eq(yaml.kind, SlurmTopology::Kind::none);
  cr_assert_eq(yaml.notes.size(), 1u);
  const SlurmTopology more = SlurmTopology::parse("NewThing=1\nSwitchName=s Nodes=n1\n").value();
  cr_assert_eq(more.groups.size(), 1u);
  cr_assert_eq(more.notes.size(), 1u);
  cr_assert_eq(SlurmTopology::parse("").value().kind, SlurmTopology::Kind::none);
}

Test(slurm_topology, errors_name_line_and_value) {
  cr_assert_eq(refused("SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\n"),
               "line 2: a is named twice");
  cr_assert_eq(refused("SwitchName=a Nodes=n[\n"), "line 1: a: \"n[\" has a [ without its ]");
  cr_assert_eq(refused("SwitchName=a Switches=b\n"),
               "switch a has a switch b below it, which has no line of its own");
  cr_assert_eq(refused("SwitchName=a Switches=a\n"), "switch a is below itself");
  cr_assert_eq(refused("SwitchName=a Switches=b\nSwitchName=b Switches=a\n"),
               "switch a is above and below itself");
  cr_assert_eq(refused("BlockSizes=4,x\n"),
               "line 1: BlockSizes=4,x is not a list of numbers above 0");
  cr_assert_eq(refused("SwitchName=a Nodes=n1\nBlockName=b Nodes=n2\n"),
               "line 2: switches and blocks are mixed; Slurm takes either");
  cr_assert_eq(refused("SwitchName= Nodes=n1\n"), "line 1: switchname has no value");
}

Test(slurm_topology, hostile_text_never_crashes_or_hangs) {
  const std::string good =
      "SwitchName=a Nodes=n[1-4]\nSwitchName=b Nodes=n[5-8]\nSwitchName=c Switches=[a,b],a\nBlockSizes=1,2\n";
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (unsigned n = 0; n < 1 + random() % 6; ++n) {
      const std::size_t at = random() % text.size();
      if (random() % 2) text[at] = "[]-,=\\\n# 09ab"[random() % 13];
      else text.insert(at, text.substr(random() % text.size(), random() % 30));
    }
    (void)SlurmTopology::parse(text).ok();
  }
}
