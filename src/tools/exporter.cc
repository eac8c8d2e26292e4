// SPDX-License-Identifier: GPL-2.0-or-later
// swell exporter: what the controller counts, for Prometheus.
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fmt/format.h>
#include <fstream>
#include <memory>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "control/socket.h"
#include "core/number.h"
#include "tools/commands.h"
#include "tools/controller_client.h"
#include "tools/job_rows.h"
#include "tools/live_snapshot.h"
#include "tools/open_metrics.h"
#include "tools/output.h"
#include "tools/patient_client.h"

namespace swell::tools {

namespace {

/// A client is waited for so long in all, for its request and to take the answer: nobody else is
/// served meanwhile.
constexpr std::chrono::seconds kClientTime{5};

struct Options {
  std::string address = "127.0.0.1:9823";
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

/// A series for each job: only where it is asked for, as there may be many.
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

/// Writes beside it and renames: node_exporter never sees half a file.
bool write_file(const std::string& path, const std::string& text) {
  const std::string fresh = path + ".new";
  {
    std::ofstream out(fresh, std::ios::trunc);
    out << text << std::flush;
    if (!out) return false;
  }
  return std::rename(fresh.c_str(), path.c_str()) == 0;
}

int write_files(ControllerClient& controller, const Options& options) {
  for (;;) {
    if (!write_file(options.text_file, collect(controller, options, MetricsFormat::prometheus)))
      return failed(fmt::format("{}: {}", options.text_file, std::strerror(errno)));
    if (options.once) return 0;
    sleep(static_cast<unsigned>(options.interval_s));
  }
}

void answer(int connection, ControllerClient& controller, const Options& options) {
  PatientClient client(connection, kClientTime);
  const std::string request = client.request();
  if (request.empty()) return;
  const auto reply = [&](const char* status, const char* type, const std::string& body) {
    client.send(fmt::format(
        "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\n"
        "Connection: close\r\n\r\n{}",
        status, type, body.size(), request.starts_with("HEAD ") ? std::string() : body));
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
  reply("200 OK", content_type(format), collect(controller, options, format));
}

int serve(ControllerClient& controller, const Options& options) {
  const std::size_t colon = options.address.rfind(':');
  const auto port = colon == std::string::npos
                        ? std::nullopt
                        : read_number<std::uint16_t>(options.address.substr(colon + 1));
  if (!port) return failed(fmt::format("--listen={} must be ADDRESS:PORT", options.address));
  const auto listening = control::listen_on(options.address.substr(0, colon), *port);
  if (!listening) return failed(listening.error().message());
  const auto bound = control::local_port(listening->get());
  say("listening at {}:{}\n", options.address.substr(0, colon), bound);
  std::fflush(stdout);
  for (;;) {
    pollfd waits{listening->get(), POLLIN, 0};
    if (::poll(&waits, 1, -1) < 0 && errno != EINTR)
      return failed(fmt::format("poll: {}", std::strerror(errno)));
    const control::Fd client(::accept4(listening->get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (client) answer(client.get(), controller, options);
    else if (errno != EINTR && errno != ECONNABORTED && errno != EAGAIN)
      return failed(fmt::format("accept: {}", std::strerror(errno)));
  }
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
