// SPDX-License-Identifier: GPL-2.0-or-later
//
// heap_probe LOOKS NODE JOB: asks slurmctld, that SLURM_CONF names, again and again for all that
// Swell ever asks it for, and prints for each kind of question how many bytes the heap grew by from
// the first tenth to the end.
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <malloc.h>
#include <string>

#include "slurm/fabric_source.h"
#include "slurm/live_slurm.h"
#include "slurm/node_extra.h"
#include "slurm/site_config.h"

using namespace swell;

namespace {

struct Question {
  const char* name;
  std::function<bool()> ask;
};

long grown_by(const Question& question, int times) {
  std::size_t begun = 0;
  for (int i = 0; i < times; ++i) {
    if (i == times / 10) begun = mallinfo2().uordblks;
    if (question.ask()) continue;
    std::fprintf(stderr, "heap_probe: %s was not answered\n", question.name);
    std::exit(1);
  }
  return static_cast<long>(mallinfo2().uordblks) - static_cast<long>(begun);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 4 || std::atoi(argv[1]) < 100) {
    std::fputs("usage: heap_probe LOOKS NODE JOB, with 100 looks or more\n", stderr);
    return 2;
  }
  slurm::init_libslurm();
  const std::string node = argv[2];
  const slurm::JobId job = static_cast<slurm::JobId>(std::strtoul(argv[3], nullptr, 10));
  const auto live = slurm::make_live_slurm();
  const Question questions[] = {
      // A fresh one each time: an old one is not given what has not changed.
      {"snapshot", [] { return slurm::make_live_slurm()->load().ok(); }},
      {"node_extra", [&] { return slurm::load_node_extra(node, "").ok(); }},
      {"set_node_extra", [&] { return slurm::set_node_extra(node, "some text of Extra").ok(); }},
      {"set_admin_comment",
       [&] { return live->set_admin_comment(job, "some text of AdminComment").ok(); }},
      {"controller_config", [] { return slurm::load_controller_config().ok(); }},
      {"site_config", [] { return slurm::load_site_config().ok(); }},
      {"site_partitions", [] { return slurm::load_site_partitions().ok(); }},
      {"fabric_files", [] { return slurm::find_fabric_files().ok(); }},
  };
  for (const Question& question : questions)
    std::printf("%s %ld\n", question.name, grown_by(question, std::atoi(argv[1])));
}
