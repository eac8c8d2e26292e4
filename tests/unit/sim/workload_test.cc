// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/workload.h"

#include <cmath>
#include <criterion/criterion.h>

#include "core/cluster/presets.h"
#include "sim/basic_plan.h"
#include "sim/truth.h"
#include "support/plans.h"

using namespace swell;
using namespace swell::sim;

namespace {

/// 1,000 jobs in 8 hours: one in ten takes half an hour, the others a minute.
Trace many() {
  Trace trace;
  for (int i = 0; i < 1000; ++i) trace.push_back({i * 28.8, 1, i % 10 == 0 ? 1800.0 : 60.0});
  return trace;
}

struct Site {
  cluster::Cluster cluster = cluster::preset("8x8-h100").value();
  std::vector<JobType> types = job_types(cluster, {.leave_out_large = true}).value();
};

double gpu_time(const Workload& workload) {
  double sum = 0;
  for (const JobSpec& job : workload.jobs) sum += job.basic_s * workload.type_of(job).gpus;
  return sum;
}

}  // namespace

Test(workload, hours_count_from_the_first_submission) {
  const Site site;
  WorkloadOptions options;
  options.hours = 1;
  options.sample = false;
  const Trace trace = {{1767225600, 4, 3600}, {1767225660, 8, 1800}, {1767229200, 8, 60}};
  const auto workload = make_workload(trace, site.types, site.cluster, options, 1);
  cr_assert(workload.ok());
  cr_assert_eq(workload->jobs.size(), 2u);
  cr_assert_eq(workload->jobs[0].submit_s, 0);
}

Test(workload, offers_the_traces_load_in_proportion_to_the_cluster) {
  const Site site;
  WorkloadOptions options;
  options.trace_gpus = 640;
  for (std::uint64_t seed : {1, 2, 3}) {
    const auto workload = make_workload(many(), site.types, site.cluster, options, seed);
    cr_assert(workload.ok());
    cr_assert_eq(workload->jobs.size(), 100u);
    const double offered = (100 * 1800.0 + 900 * 60.0) / 10;
    cr_assert(support::near(gpu_time(*workload), offered, 0.05), "%g of %g", gpu_time(*workload),
              offered);
  }
}

Test(workload, long_jobs_are_as_frequent_as_in_the_trace) {
  const Site site;
  WorkloadOptions options;
  options.trace_gpus = 640;
  const auto workload = make_workload(many(), site.types, site.cluster, options, 1);
  double max = 0;
  for (const JobSpec& job : workload->jobs) max = std::max(max, job.basic_s);
  int longest = 0;
  for (const JobSpec& job : workload->jobs) longest += job.basic_s > 0.9 * max ? 1 : 0;
  cr_assert_eq(longest, 10);
}

Test(workload, follows_the_mix) {
  const Site site;
  WorkloadOptions options;
  options.sample = false;
  options.rigid_share = 0.25;
  const auto workload = make_workload(many(), site.types, site.cluster, options, 1);
  std::map<char, int> sizes;
  int rigid = 0;
  for (const JobSpec& job : workload->jobs) {
    ++sizes[workload->type_of(job).size];
    rigid += job.elastic ? 0 : 1;
    cr_assert(job.limit_s >= job.basic_s);
  }
  cr_assert(std::abs(sizes['S'] - 600) < 60 && std::abs(sizes['M'] - 200) < 50 &&
                std::abs(sizes['L'] - 200) < 50,
            "%d %d %d", sizes['S'], sizes['M'], sizes['L']);
  cr_assert(std::abs(rigid - 250) < 50, "%d", rigid);
}

Test(workload, the_seed_says_which_elastic_jobs_consent) {
  const Site site;
  WorkloadOptions options;
  options.sample = false;
  options.rigid_share = 0.5;
  const auto jobs = [&](double share, std::uint64_t seed) {
    options.consent_share = share;
    return make_workload(many(), site.types, site.cluster, options, seed)->jobs;
  };
  const auto none = jobs(0, 1), half = jobs(0.5, 1), again = jobs(0.5, 1), all = jobs(1, 1),
             other = jobs(0.5, 2);
  int consenting = 0, elastic = 0, differ = 0;
  for (std::size_t i = 0; i < none.size(); ++i) {
    cr_assert_not(none[i].consents);
    cr_assert_eq(all[i].consents, all[i].elastic);
    cr_assert_eq(half[i].consents, again[i].consents);
    cr_assert(!half[i].consents || half[i].elastic, "a rigid job runs with what it asked for");
    cr_assert_eq(half[i].type, none[i].type, "nothing else is drawn anew");
    cr_assert_eq(half[i].elastic, none[i].elastic);
    cr_assert_eq(half[i].basic_s, none[i].basic_s);
    cr_assert_eq(half[i].limit_s, none[i].limit_s);
    consenting += half[i].consents ? 1 : 0;
    elastic += half[i].elastic ? 1 : 0;
    differ += half[i].consents != other[i].consents ? 1 : 0;
  }
  cr_assert(std::abs(2 * consenting - elastic) < 100, "%d of %d", consenting, elastic);
  cr_assert_gt(differ, 100, "another seed, other jobs");
}

Test(workload, intensity_divides_intervals_and_nothing_else) {
  const Site site;
  WorkloadOptions options;
  const auto usual = make_workload(many(), site.types, site.cluster, options, 1);
  options.intensity = 2;
  const auto twice = make_workload(many(), site.types, site.cluster, options, 1);
  for (std::size_t i = 0; i < usual->jobs.size(); ++i) {
    cr_assert(support::near(twice->jobs[i].submit_s * 2, usual->jobs[i].submit_s));
    cr_assert_eq(twice->jobs[i].basic_s, usual->jobs[i].basic_s);
  }
}

Test(workload, other_seeds_are_other_samples_and_equal_ones_equal) {
  const Site site;
  WorkloadOptions options;
  options.trace_gpus = 640;
  auto submissions = [&](std::uint64_t seed) {
    std::vector<double> all;
    const auto workload = make_workload(many(), site.types, site.cluster, options, seed);
    for (const JobSpec& job : workload->jobs) all.push_back(job.submit_s);
    return all;
  };
  cr_assert(submissions(1) == submissions(1));
  cr_assert(submissions(1) != submissions(2));
}

Test(job_types, a_model_that_is_too_large_is_an_error_unless_it_is_left_out) {
  const auto cluster = cluster::preset("1x8-h100").value();
  const auto types = job_types(cluster, {});
  cr_assert_not(types.ok());
  cr_assert_eq(types.error().message(),
               std::string("model gpt2-15b needs 16 GPUs and cluster 1x8-h100 has 8; use a larger "
                           "one, or leave such models out (--leave-out-large)"));
  const auto fewer = job_types(cluster, {.leave_out_large = true});
  cr_assert(fewer.ok());
  for (const JobType& type : *fewer) cr_assert_leq(type.gpus, 8);
}

Test(job_types, the_least_is_rounded_up_to_gpus_on_which_the_model_fits) {
  const auto cluster = cluster::preset("2x8-h100").value();
  const auto unasked = job_types(cluster, {});
  for (const JobType& type : *unasked) cr_assert_null(type.least.get());
  for (const double share : {0.01, 0.5, 0.9, 1.0}) {
    const auto types = job_types(cluster, {.least_share = share});
    bool rounded_up = false;
    for (const JobType& type : *types) {
      const char* name = type.model->name.c_str();
      if (type.gpus == 1 || share == 1) cr_assert_null(type.least.get(), "%s", name);
      if (!type.least) continue;
      const JobType& least = *type.least;
      cr_assert_lt(least.gpus, type.gpus, "%s", name);
      cr_assert_geq(least.gpus, share * type.gpus, "%s", name);
      cr_assert_eq(least.model, type.model);
      const auto gpus = first_gpus(least.gpus, cluster, 0);
      cr_assert(gpus.has_value(), "%s", name);
      const auto layout = basic_layout(least, *gpus, cluster);
      cr_assert(layout.has_value(), "%s", name);
      cr_assert_eq(layout->gpu_count(), least.gpus);
      cr_assert(Truth(least, cluster, 1, 1).fits(*layout), "%s", name);
      // The smallest share asks for one GPU: state of 13 billion parameters does not fit there.
      if (share < 0.1 && type.size == 'L') {
        cr_assert_gt(least.gpus, 1, "%s", name);
        rounded_up = true;
      }
      if (share == 0.5 && type.size != 'L') cr_assert_eq(least.gpus, type.gpus / 2, "%s", name);
    }
    cr_assert(share > 0.1 || rounded_up);
  }
}

Test(job_types, start_with_plans_that_fill_their_gpus) {
  const Site site;
  cr_assert_eq(site.types.size(), 10u, "all of Table 1 but XL fit 64 GPUs");
  for (const JobType& type : site.types) {
    cr_assert_eq(type.pp * type.dp * type.tp, type.gpus, "%s", type.model->name.c_str());
    const auto layout = basic_layout(type, *first_gpus(type.gpus, site.cluster, 0), site.cluster);
    cr_assert(layout.has_value());
    cr_assert_eq(layout->gpu_count(), type.gpus);
  }
}

Test(job_types, users_ask_for_each_gpu_type_that_holds_their_model) {
  const auto cluster = cluster::preset("3x8-h100+1x8-a10").value();
  const auto types = job_types(cluster, {});
  cr_assert(types.ok(), "%s", types.ok() ? "" : types.error().message().c_str());
  int on[2] = {0, 0};
  for (const JobType& type : *types) {
    ++on[type.gpu_type];
    const auto gpus = first_gpus(type.gpus, cluster, type.gpu_type);
    for (const NodeGpus& part : *gpus) cr_assert(has_type(cluster, part.node, type.gpu_type));
    cr_assert(Truth(type, cluster, 1, 1).fits(*basic_layout(type, *gpus, cluster)));
  }
  cr_assert_eq(on[0], 10, "all of Table 1 but XL");
  cr_assert(on[1] > 0 && on[1] < 10, "16 GPUs are not there");

  const auto workload = make_workload(many(), *types, cluster, {.trace_gpus = 64}, 1);
  double asked[2] = {0, 0};
  for (const JobSpec& job : workload->jobs)
    if (workload->type_of(job).model->name == "gpt2-350m")
      asked[workload->type_of(job).gpu_type] += 1;
  cr_assert(std::abs(asked[1] / (asked[0] + asked[1]) - 0.25) < 0.1, "%g and %g", asked[0],
            asked[1]);
  const auto small = cluster::preset("1x8-h100+1x8-a10").value();
  cr_assert_not(job_types(small, {}).ok());
}

Test(basic_plan, demands_are_whole_nodes_once_they_exceed_one) {
  const Site site;
  cr_assert_eq(spread_of(8, site.cluster, 0)->nodes, 1);
  cr_assert_eq(spread_of(16, site.cluster, 0)->nodes, 2);
  cr_assert_eq(spread_of(16, site.cluster, 0)->per_node, 8);
  cr_assert_not(spread_of(128, site.cluster, 0).has_value());
  cr_assert_eq(lowest(0b101100, 2), 0b001100u);
}

Test(generator, makes_as_many_jobs_as_asked_for) {
  for (bool diurnal : {false, true}) {
    Generator generator;
    generator.hours = 48;
    generator.jobs_per_hour = 50;
    generator.diurnal = diurnal;
    const auto trace = generate(generator, 3);
    cr_assert(std::abs(static_cast<double>(trace.size()) - 2400) < 250, "%zu", trace.size());
    int at_night = 0;
    for (const TraceJob& job : trace)
      at_night +=
          std::fmod(job.submit_s, 86400) < 21600 || std::fmod(job.submit_s, 86400) > 64800 ? 1 : 0;
    if (diurnal) cr_assert(at_night * 3 < static_cast<int>(trace.size()), "%d", at_night);
  }
}
