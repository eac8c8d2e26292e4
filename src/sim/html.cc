// SPDX-License-Identifier: GPL-2.0-or-later
#include <fmt/format.h>

#include "core/count_of.h"
#include "sim/charts.h"
#include "sim/report.h"
#include "sim/svg.h"

namespace swell::sim {

namespace {

constexpr const char* kStyle = R"css(
:root{--ink:#1c2127;--soft:#5d6670;--line:#dfe3e8;--paper:#fff;--card:#f6f7f9}
@media(prefers-color-scheme:dark){:root{--ink:#e8ebee;--soft:#9aa4ae;--line:#353c44;--paper:#15191d;--card:#1e2329}}
body{margin:0 auto;max-width:1180px;padding:28px 20px 60px;background:var(--paper);color:var(--ink);font:15px/1.45 system-ui,"DejaVu Sans",sans-serif}
h1{font-size:27px;margin:0 0 4px}h2{font-size:18px;margin:34px 0 2px}p{color:var(--soft);margin:2px 0 10px;max-width:78ch}
.cards{display:flex;flex-wrap:wrap;gap:12px;margin:20px 0 6px}
.card{background:var(--card);border-left:5px solid var(--c);border-radius:4px;padding:10px 16px 12px;flex:1 1 150px}
.card b{display:block;font-size:15px}.card span{display:block;font-size:27px;font-weight:650}.card small{color:var(--soft)}
.two{display:grid;grid-template-columns:repeat(auto-fit,minmax(440px,1fr));gap:8px 28px}
svg{width:100%;height:auto;display:block;overflow:visible}
.legend{display:flex;flex-wrap:wrap;gap:4px 18px;margin:4px 0}.legend i{display:inline-block;width:14px;height:4px;background:var(--c);margin-right:6px;vertical-align:middle}
.grid{stroke:var(--line)}.axis{stroke:var(--soft)}.mark{fill:var(--soft);font-size:11.5px}.caption{fill:var(--soft);font-size:12.5px}
.name{fill:var(--ink);font-size:14px}.value{fill:var(--ink);font-size:14px;font-weight:650}
.curve{fill:none;stroke:var(--c);stroke-width:2.2;stroke-linejoin:round}.bar,.dot{fill:var(--c)}.band{fill:var(--c)}
.one{stroke:var(--soft);stroke-dasharray:4 4}.capacity{stroke:var(--soft);stroke-dasharray:6 4}.whisker{stroke:var(--ink);stroke-width:1.6}
table{border-collapse:collapse;width:100%;margin:8px 0;font-variant-numeric:tabular-nums}
td{white-space:nowrap}th,td{text-align:right;padding:5px 10px;border-bottom:1px solid var(--line)}th{color:var(--soft);font-weight:500}th:first-child,td:first-child{text-align:left}
)css";

std::string cards(const Results& results) {
  std::string html = "<div class=\"cards\">";
  const Metrics& first = results.metrics.front();
  for (std::size_t i = 0; i < results.policies.size(); ++i) {
    const Metrics& one = results.metrics[i];
    html += fmt::format(
        "<div class=\"card\" style=\"--c:{}\"><b>{}</b><span>{}</span><small>{}{:.0f} % of GPUs in use</small></div>",
        policy_colour(i), escaped(results.policies[i]), time_label(one.avg_jct_s.mean),
        i == 0 ? std::string()
               : fmt::format("{:.2f}× as fast · ", first.avg_jct_s.mean / one.avg_jct_s.mean),
        100 * one.gpu_utilization.mean);
  }
  return html + "</div>";
}

std::string legend(const Results& results) {
  std::string html = "<div class=\"legend\">";
  for (std::size_t i = 0; i < results.policies.size(); ++i)
    html += fmt::format("<span><i style=\"--c:{}\"></i>{}</span>", policy_colour(i),
                        escaped(results.policies[i]));
  return html + "</div>";
}

std::string section(const std::string& heading, const std::string& words,
                    const std::string& content) {
  return fmt::format("<section><h2>{}</h2><p>{}</p>{}</section>", heading, words, content);
}

std::string timelines(const Results& results) {
  std::string html;
  const double until_s = nearly_all_done_s(results);
  for (std::size_t i = 0; i < results.policies.size(); ++i)
    html += fmt::format("<h3 style=\"margin:14px 0 0;font-size:15px\">{}</h3>{}",
                        escaped(results.policies[i]), gpus_over_time(results, i, until_s));
  return html;
}

std::string table(const Results& results) {
  std::string html =
      "<table><tr><th>policy</th><th>JCT</th><th>weighted JCT</th><th>99 % of jobs</th><th>makespan</th><th>queue</th><th>most delay over fifo</th>"
      "<th>changes of plan</th><th>GPU-hours lost to them</th><th>prediction error</th></tr>";
  for (std::size_t i = 0; i < results.policies.size(); ++i) {
    const Metrics& one = results.metrics[i];
    html += fmt::format(
        "<tr><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{}</td><td>{:.0f}</td><td>{:.1f}</td><td>{:.1f} %</td></tr>",
        escaped(results.policies[i]), time_label(one.avg_jct_s.mean),
        time_label(one.avg_wjct_s.mean), time_label(one.p99_jct_s.mean),
        time_label(one.makespan_s.mean), time_label(one.avg_queue_s.mean),
        time_label(one.max_delay_vs_fifo_s.mean), one.reconfigurations.mean,
        one.lost_gpu_s.mean / 3600, 100 * one.prediction_error.mean);
  }
  return html + "</table>";
}

}  // namespace

std::string results_html(const Results& results, const Experiment& experiment) {
  const std::size_t seeds = results.fifo.size();
  std::string body = fmt::format(
      "<h1>{} on {}</h1><p>Cluster {}; {}; {}. The large figure is the average time from a job's submission to its end.</p>",
      count_of(results.jobs, "job"), count_of(experiment.cluster->gpu_count(), "GPU"),
      escaped(experiment.cluster->name()),
      experiment.trace ? jobs_text(results, experiment) : "made-up jobs", count_of(seeds, "seed"));
  body += cards(results);
  body += section(
      "GPUs in use",
      "Full colours are what jobs asked for, light ones what they were lent on top; a colour is a job, or a size of jobs where there are many. "
      "First seed, until nearly all jobs have ended.",
      timelines(results));
  body += "<div class=\"two\">";
  body += section("How long jobs take", "The further left and up, the better.",
                  jct_distribution(results) + legend(results));
  body += section("Who is faster, and who slower", "Each job against itself under fifo.",
                  jct_ratios(results) + legend(results));
  body += section(
      "On average",
      seeds > 1 ? "With 95 % confidence over seeds." : "Of one seed: more tell how sure this is.",
      jct_bars(results));
  const std::string decisions = decision_latency(results);
  if (!decisions.empty())
    body += section("How fast decisions are made", "On the machine that ran the simulation.",
                    decisions);
  body += "</div>";
  body += section("In figures", "Means over seeds.", table(results));
  return fmt::format(
      "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\"><title>swell sim: {} on {}</title><style>{}</style></head><body>{}</body></html>\n",
      count_of(results.jobs, "job"), count_of(experiment.cluster->gpu_count(), "GPU"), kStyle,
      body);
}

}  // namespace swell::sim
