// SPDX-License-Identifier: GPL-2.0-or-later
// swell exporter: what the controller counts, for Prometheus.
#include <chrono>
#include <cstdio>
#include <fmt/format.h>
#include <map>
#include <memory>
#include <optional>
#include <unistd.h>

#include "control/socket.h"
#include "tools/commands.h"
#include "tools/controller_client.h"
#include "tools/files.h"
#include "tools/http_server.h"
#include "tools/job_rows.h"
#include "tools/live_snapshot.h"
#include "tools/open_metrics.h"
#include "tools/output.h"

namespace swell::tools {

namespace {

constexpr const char* kOwnHost = "127.0.0.1";
/// Clients that ask more often get the same numbers, so that not everyone who can reach the port
/// can load the controller and slurmctld.
constexpr std::chrono::seconds kFresh{1};

struct Options {
  std::string address = fmt::format("{}:9823", kOwnHost);
  std::string text_file;
  int interval_s = 15;
  bool once = false, per_job = false;
};

Json gauge(const char* name, const char* help, Json samples) {
  return Json::object({{"name", name}, {"type", "gauge"}, {"help", help}, {"samples", samples}});
}

Json sample(Json labels, Json value) {
  return Json::object({{"labels", std::move(labels)}, {"value", std::move(value)}});
}

/// Adds a series for each job: only on request, since there may be many jobs.
void add_jobs(Json& families) {
  const auto snapshot = load_snapshot();
  const auto rows = snapshot ? job_rows(*snapshot, {}) : snapshot.error();
  if (!rows) return;
  Json samples = Json::array();
  for (const JobRow& row : *rows)
    for (const auto& [kind, gpus] : {std::pair{"basic", row.basic_gpus}, {"lent", row.lent_gpus}})
      samples.append(sample(
          Json::object({{"job", std::to_string(row.id)}, {"user", row.user}, {"kind", kind}}),
          gpus));
  families.append(
      gauge("swell_job_gpus", "GPUs of an elastic job, its own and lent ones.", samples));
}

std::string collect(ControllerClient& controller, const Options& options, MetricsFormat format) {
  control::Ask ask;
  ask.what = "metrics";
  const Result<control::Answer> answer = controller.ask(ask);
  Json families = Json::array();
  families.append(gauge("swell_up", "Whether the controller in slurmctld has answered.",
                        Json::array({sample(Json::object(), answer ? 1 : 0)})));
  if (answer)
    for (const Json& family : answer->details.at("families").items()) families.append(family);
  if (answer && options.per_job) add_jobs(families);
  return metrics_text(Json::object({{"families", families}}), format);
}

int failed(const std::string& what) {
  complain("exporter: " + what);
  return 1;
}

int write_files(ControllerClient& controller, const Options& options) {
  for (;;) {
    // The file is replaced atomically: node_exporter never sees half a file.
    const Result<void> written =
        replace_file(options.text_file, collect(controller, options, MetricsFormat::prometheus));
    if (!written) return failed(written.error().message());
    if (options.once) return 0;
    sleep(static_cast<unsigned>(options.interval_s));
  }
}

/// The metrics in each format, collected again if they are older than kFresh.
class Fresh {
 public:
  Fresh(ControllerClient& controller, const Options& options)
      : controller_(controller), options_(options) {}

  const std::string& metrics(MetricsFormat format) {
    Known& known = known_[format];
    const auto now = std::chrono::steady_clock::now();
    if (!known.until || now >= *known.until) {
      known.text = collect(controller_, options_, format);
      known.until = std::chrono::steady_clock::now() + kFresh;
    }
    return known.text;
  }

 private:
  struct Known {
    std::optional<std::chrono::steady_clock::time_point> until;
    std::string text;
  };
  ControllerClient& controller_;
  const Options& options_;
  std::map<MetricsFormat, Known> known_;
};

std::string answer(const std::string& request, Fresh& fresh) {
  const auto reply = [&](const char* status, const char* type, const std::string& body) {
    return fmt::format(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n"
        "Connection: close\r\n\r\n{}",
        status, type, body.size(), request.starts_with("HEAD ") ? std::string() : body);
  };
  if (!request.starts_with("GET ") && !request.starts_with("HEAD "))
    return reply("405 Method Not Allowed", "text/plain", "only GET is answered\n");
  const std::string path =
      request.substr(request.find(' ') + 1,
                     request.find_first_of(" ?\r", request.find(' ') + 1) - request.find(' ') - 1);
  if (path != "/metrics")
    return reply("404 Not Found", "text/plain", "Swell's metrics are at /metrics\n");
  const MetricsFormat format = request.find("application/openmetrics-text") != std::string::npos
                                   ? MetricsFormat::open_metrics
                                   : MetricsFormat::prometheus;
  return reply("200 OK", content_type(format), fresh.metrics(format));
}

int serve(ControllerClient& controller, const Options& options) {
  const auto address = read_listen_address(options.address, kOwnHost);
  if (!address) return failed(address.error().message());
  auto listening = listen_at(*address);
  if (!listening) return failed(listening.error().message());
  const std::string host = control::local_host(listening->get());
  say("listening at {}:{}\n", host.find(':') != std::string::npos ? "[" + host + "]" : host,
      control::local_port(listening->get()));
  std::fflush(stdout);
  Fresh fresh(controller, options);
  HttpServer::Options its;
  its.answer = [&fresh](const std::string& request) { return answer(request, fresh); };
  HttpServer server(std::move(*listening), std::move(its));
  for (;;) server.turn();
}

int run(const Options& options) {
  ControllerClient controller;
  if (!options.text_file.empty()) return write_files(controller, options);
  if (!options.once) return serve(controller, options);
  write_text(collect(controller, options, MetricsFormat::open_metrics));
  return 0;
}

}  // namespace

Action add_exporter(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("exporter", "Metrics for Prometheus");
  command->add_option("--listen", options->address, "Where /metrics is served")
      ->type_name("ADDRESS:PORT")
      ->capture_default_str();
  command->add_option("--textfile", options->text_file, "Write a file for node_exporter instead")
      ->type_name("FILE");
  command->add_option("--interval", options->interval_s, "Seconds between two files")
      ->check(CLI::Range(1, 86400))
      ->capture_default_str();
  command->add_flag("--once", options->once, "Write the metrics once and end");
  command->add_flag("--per-job", options->per_job,
                    "Add a series for each job, named by id and user");
  return [options] { return run(*options); };
}

}  // namespace swell::tools
