// SPDX-License-Identifier: GPL-2.0-or-later
// spank_swell: adds the option --elastic to sbatch, salloc and srun; in slurmd it publishes the
// node's topology. The parser is the server's own (control/elastic_spec.h), so that a mistake is
// reported before anything is submitted.
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>

#include "control/elastic_spec.h"
#include "control/printable.h"
#include "plugins/guarded.h"
#include "plugins/spank/publisher.h"
#include "plugins/spank/speeds.h"

extern "C" {
#include <slurm/spank.h>
}

#define EXPORT __attribute__((visibility("default")))

namespace {

using swell::control::printable;
using swell::plugins::guarded;

/// Returns the option's value, in the form that the server reads; nothing: --elastic was not given.
std::optional<std::string>& given() {
  static std::optional<std::string> value;
  return value;
}

/// Returns the speeds of table=FILE as they are sent with the submission; empty: none.
std::string& speeds() {
  static std::string text;
  return text;
}

int read_option(int, const char* value, int) noexcept {
  return guarded("--elastic", ESPANK_ERROR, [&]() -> int {
    // For an option without a value, Slurm passes these words to the later components of a het job.
    const std::string_view text =
        value == nullptr || std::string_view(value) == "(null)" ? "" : value;
    const auto spec = swell::control::ElasticSpec::parse(text);
    if (!spec) {
      slurm_error("%s", printable(spec.error().message()).c_str());
      return ESPANK_BAD_ARG;
    }
    speeds().clear();
    if (!spec->table.empty()) {
      const auto read = swell::spank::read_speeds(SWELL_BINDIR "/swell", spec->table);
      if (!read) {
        slurm_error("%s", printable(read.error().message()).c_str());
        return ESPANK_BAD_ARG;
      }
      speeds() = *read;
    }
    given() = spec->text();
    return ESPANK_SUCCESS;
  });
}

/// Returns whether this program submits a job (sbatch, salloc, srun), rather than runs a step.
bool submits() {
  const spank_context_t context = spank_context();
  return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
}

/// Tells the job's own srun calls that the job is elastic; jobs that are submitted within it do not
/// inherit it.
constexpr const char* kElasticJob = "SWELL_JOB_IS_ELASTIC";
/// Variables by which Slurm passes the option to processes of a job; jobs that are submitted within
/// it would inherit it.
constexpr const char* kInherited[] = {"SLURM_SPANK_SWELL_ELASTIC", "SLURM_SPANK_SWELL_SPEEDS",
                                      "SLURM_SPANK__SLURM_SPANK_OPTION_swell_elastic",
                                      "_SLURM_SPANK_OPTION_swell_elastic"};
/// Set by swellrun for the steps that it starts.
constexpr const char* kAgent = "SWELL_AGENT";

/// Publishes, once for each start of slurmd, the topology of this node. Errors are logged, and
/// slurmd goes on.
void publish_topology(int count, char** arguments) {
  swell::spank::Settings settings;
  for (const std::string& problem : settings.read(count, arguments))
    slurm_error("swell: plugstack.conf: %s", problem.c_str());
  if (!settings.publish) return;
  const std::string problem = swell::spank::start_publisher(settings, SWELL_BINDIR "/swell");
  if (!problem.empty()) slurm_error("swell: %s", problem.c_str());
}

/// Returns the argument control_port, as swellrun and the swell command read it; empty: it is not
/// given.
std::string control_port_of(int count, char** arguments) {
  swell::spank::Settings settings;
  settings.read(count, arguments);
  return settings.control_port > 0 ? std::to_string(settings.control_port) : "";
}

/// Configless Slurm passes plugstack.conf to nodes, but not swell.conf.
constexpr const char* kControlPort = "SWELL_CONTROL_PORT";

}  // namespace

extern "C" {

EXPORT extern const char plugin_name[];
EXPORT extern const char plugin_type[];
EXPORT extern const unsigned int plugin_version;
EXPORT extern const unsigned int spank_plugin_version;
const char plugin_name[] = "swell";
const char plugin_type[] = "spank";
const unsigned int plugin_version = SLURM_VERSION_NUMBER;
const unsigned int spank_plugin_version = 1;

EXPORT int slurm_spank_init(spank_t spank, int count, char** arguments) noexcept {
  if (spank_context() == S_CTX_SLURMD)
    return guarded("publishing the topology", ESPANK_SUCCESS, [&]() -> int {
      publish_topology(count, arguments);
      return ESPANK_SUCCESS;
    });
  if (!submits()) return ESPANK_SUCCESS;
  if (spank_context() == S_CTX_ALLOCATOR)
    for (const char* name : kInherited) unsetenv(name);
  static char name[] = "elastic";
  static char argument[] = "key=value,...";
  static char usage[] =
      "lend the job idle GPUs (keys: max=N|Nx, min=N, sizes=A/B/.. or step=N, types=A/B/.., "
      "consistency=exact|relaxed, mode=restart|live, grace=SECONDS, stay=SECONDS, grow=SECONDS, "
      "deadline=TIME|DATE, steps=N, table=FILE, switch=requeue)";
  static spank_option option = {name, argument, usage, 2, 0, read_option};
  return spank_option_register(spank, &option);
}

/// Passes the given value with the submission to job_submit/swell.
EXPORT int slurm_spank_init_post_opt(spank_t spank, int count, char** arguments) noexcept {
  return guarded("--elastic", ESPANK_ERROR, [&]() -> int {
    if (!submits()) return ESPANK_SUCCESS;
    // A shell that salloc starts here needs the variable.
    if (const std::string port = control_port_of(count, arguments);
        !port.empty() && spank_context() == S_CTX_ALLOCATOR)
      setenv(kControlPort, port.c_str(), 0);
    if (spank_context() == S_CTX_ALLOCATOR) {
      if (given()) setenv(kElasticJob, "1", 1);
      else unsetenv(kElasticJob);
    }
    if (!given()) return ESPANK_SUCCESS;
    if (!speeds().empty())
      if (const spank_err_t problem =
              spank_job_control_setenv(spank, "SWELL_SPEEDS", speeds().c_str(), 1);
          problem != ESPANK_SUCCESS)
        return problem;
    return spank_job_control_setenv(spank, "SWELL_ELASTIC", given()->c_str(), 1);
  });
}

/// Called in the process that starts a job's script or tasks.
EXPORT int slurm_spank_user_init(spank_t spank, int count, char** arguments) noexcept {
  return guarded("control_port", ESPANK_SUCCESS, [&]() -> int {
    if (const std::string port = control_port_of(count, arguments); !port.empty())
      spank_setenv(spank, kControlPort, port.c_str(), 0);
    return ESPANK_SUCCESS;
  });
}

/// Called after srun has created its step. Writes one line for the user if this is the first step
/// of an elastic job, and swellrun has not started it.
EXPORT int slurm_spank_local_user_init(spank_t spank, int, char**) noexcept {
  uint32_t step = 0;
  if (std::getenv(kElasticJob) == nullptr || std::getenv(kAgent) != nullptr ||
      spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS || step != 0)
    return ESPANK_SUCCESS;
  slurm_info(
      "this job is elastic, but srun runs programs on the job's own GPUs alone; write swellrun in place of srun to use lent GPUs too");
  return ESPANK_SUCCESS;
}

}  // extern "C"
