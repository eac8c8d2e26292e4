// SPDX-License-Identifier: GPL-2.0-or-later
// swell drain: reclaims all lent GPUs, in order, before an upgrade, a removal or maintenance, and
// waits until they are back.
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <memory>
#include <sys/stat.h>
#include <thread>

#include "control/swell_conf.h"
#include "control/tag.h"
#include "core/count_of.h"
#include "slurm/live_slurm.h"
#include "slurm/site_config.h"
#include "tools/commands.h"
#include "tools/controller_client.h"
#include "tools/files.h"
#include "tools/output.h"

namespace swell::tools {

namespace {

using Clock = std::chrono::steady_clock;

/// Time between queries of Slurm for what is still lent.
constexpr auto kLookEvery = std::chrono::milliseconds(500);

struct Options {
  bool undo = false, no_wait = false;
  int timeout_s = 600;
};

/// Returns the companions that hold GPUs, from Slurm's own records.
Result<std::vector<slurm::JobId>> companions(slurm::SlurmApi& slurm) {
  slurm.forget();
  const Result<std::optional<slurm::Snapshot>> loaded = slurm.load();
  if (!loaded) return loaded.error().while_doing("asking slurmctld");
  std::vector<slurm::JobId> held;
  for (const slurm::JobRecord& job : (*loaded)->jobs) {
    const auto tag = control::Tag::find(job.admin_comment);
    const bool over = job.phase == slurm::JobPhase::ended || job.phase == slurm::JobPhase::pending;
    if (tag && !tag->get("parent").empty() && !over) held.push_back(job.id);
  }
  return held;
}

/// Waits until nothing is lent, and prints each change of the number of companions.
Result<void> wait_until_back(const Options& options) {
  const auto slurm = slurm::make_live_slurm();
  const auto deadline = Clock::now() + std::chrono::seconds(options.timeout_s);
  std::size_t said = 0;
  for (int empty = 0; empty < 2; std::this_thread::sleep_for(kLookEvery)) {
    const auto held = companions(*slurm);
    if (!held) return held.error();
    // It must be empty twice: the last grant may just now become a companion.
    empty = held->empty() ? empty + 1 : 0;
    if (!held->empty() && held->size() != said)
      say("{} {} lent GPUs: {}\n", count_of(held->size(), "companion"),
          held->size() == 1 ? "holds" : "hold", fmt::format("{}", fmt::join(*held, ",")));
    std::fflush(stdout);
    said = held->size();
    if (empty == 0 && Clock::now() >= deadline)
      return Error(fmt::format(
          "after {} s these companions still hold lent GPUs: {}; \"swell doctor\" says whether the controller "
          "answers; scancel ends them, and their jobs go on from the last checkpoint",
          options.timeout_s, fmt::join(*held, ",")));
  }
  return {};
}

Result<void> drain(const Options& options) {
  slurm::init_libslurm();
  const auto slurmctld = slurm::load_controller_config();
  if (!slurmctld) return slurmctld.error().while_doing("asking slurmctld");
  const std::string path = control::swell_conf_path(slurmctld->slurm_conf);
  const auto text = read_file(path);
  if (!text) return text.error().while_doing("run this on slurmctld's host");
  const auto conf = control::SwellConf::parse(*text);
  if (!conf) return conf.error().while_doing(path);
  struct stat status {};
  if (stat(path.c_str(), &status) != 0)
    return Error(fmt::format("{}: {}", path, std::strerror(errno)));
  const char* wanted = options.undo ? "yes" : "drain";
  if (conf->enabled && conf->draining == !options.undo)
    say("{} has Elasticity={} already\n", path, wanted);
  else if (!conf->enabled && !options.undo)
    say("{} has Elasticity=no, which lends nothing\n", path);
  else if (const Result<void> done =
               replace_file(path, control::with_elasticity(*text, wanted), &status);
           !done)
    return done.error().while_doing("run this as root on slurmctld's host");
  if (options.undo) {
    control::Ask ask;
    ask.what = "metrics";
    if (ask_controller(ask)) say("GPUs are lent again\n");
    else
      say("{} has Elasticity=yes; GPUs are lent again once Swell's controller runs, which does not "
          "answer now: {}\n",
          path,
          conf->enabled ? "swell doctor says why"
                        : "restart slurmctld, which starts none with Elasticity=no");
    return {};
  }
  if (options.no_wait) return {};
  if (const Result<void> done = wait_until_back(options); !done) return done;
  say("nothing is lent; to lend again: swell drain --undo\n");
  return {};
}

}  // namespace

Action add_drain(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command =
      app.add_subcommand("drain", "Take back what is lent, in order, and lend no more");
  command->add_flag("--undo", options->undo, "Lend again");
  command->add_flag("--no-wait", options->no_wait, "Do not wait until all is back");
  command->add_option("--timeout", options->timeout_s, "How long to wait, in seconds")
      ->capture_default_str()
      ->check(CLI::Range(1, 864000))
      ->type_name("SECONDS");
  return [options] {
    const Result<void> done = drain(*options);
    return done ? 0 : fail(done.error());
  };
}

}  // namespace swell::tools
