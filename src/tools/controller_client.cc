// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/controller_client.h"

#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <string>
#include <thread>
#include <utility>

#include "control/client.h"
#include "control/swell_conf.h"
#include "slurm/live_slurm.h"
#include "slurm/site_config.h"

namespace swell::tools {

namespace {

constexpr auto kConnectTime = std::chrono::seconds(5);
constexpr auto kAnswerTime = std::chrono::seconds(10);
constexpr auto kComeBackPause = std::chrono::milliseconds(20);
constexpr int kLosses = 3;  // connections that may end without an answer

/// Returns the controller's address, and which users it may run as.
Result<control::Client::Options> controller_of(const slurm::ControllerConfig& slurm) {
  const auto conf = control::swell_conf_on_node(std::getenv("SLURM_CONF"), slurm.slurm_conf,
                                                std::getenv("SWELL_CONTROL_PORT"));
  if (!conf) return conf.error();
  control::Client::Options options;
  options.port = static_cast<std::uint16_t>(conf->control_port);
  options.munge_socket = slurm::munge_socket_of(slurm.auth_info);
  options.trust = [own = slurm.slurm_uid](uid_t uid) { return uid == own || uid == 0; };
  if (!conf->control_address.empty()) options.host = conf->control_address;
  return options;
}

/// Asks one host. A connection that ends without an answer is made again, since each request has
/// the same effect if it is carried out twice.
Result<control::Answer> asked_at(const control::Client::Options& where, const control::Ask& ask) {
  const auto deadline = std::chrono::steady_clock::now() + kAnswerTime;
  for (int losses = 0;;) {
    auto client = control::Client::connect(where, kConnectTime);
    const auto sent = client ? (*client)->send(ask) : client.error();
    auto message = sent ? (*client)->receive(kAnswerTime) : sent.error();
    // Strangers that keep connecting can displace a peer that has not sent anything yet.
    const bool may_go_on =
        (client && !message && (*client)->is_crowded_out()) || ++losses < kLosses;
    if (!message && may_go_on && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kComeBackPause);
      continue;
    }
    if (!client)
      return Error(
          fmt::format("{}; Swell's controller does not run, or cannot be reached from here; "
                      "an admin finds out why with: swell doctor",
                      client.error().message()));
    if (!message) return message.error();
    if (!*message)
      return Error(fmt::format("{}:{} does not answer: ask again", where.host, where.port));
    if (const auto* refused = std::get_if<control::Refused>(&**message))
      return Error(refused->reason);
    if (auto* answer = std::get_if<control::Answer>(&**message)) return std::move(*answer);
    return Error(fmt::format("{}:{} is not a controller of Swell", where.host, where.port));
  }
}

}  // namespace

Result<void> ControllerClient::find() {
  slurm::init_libslurm();
  const auto config = slurm::load_controller_config();
  if (!config) return config.error().while_doing("asking slurmctld");
  auto where = controller_of(*config);
  if (!where) return where.error();
  if (!where->host.empty()) {
    known_ = {*where};
    return {};
  }
  for (const std::string& host : config->hosts) {
    where->host = host;
    known_.push_back(*where);
  }
  if (known_.empty()) return Error("slurm.conf names no SlurmctldHost");
  return {};
}

Result<control::Answer> ControllerClient::ask(const control::Ask& ask) {
  if (known_.empty())
    if (Result<void> found = find(); !found) return found.error();
  Result<control::Answer> answer = Error("nobody was asked");
  // Only the active slurmctld has a controller, so all hosts are tried.
  for (const control::Client::Options& where : known_) {
    answer = asked_at(where, ask);
    if (answer) break;
  }
  return answer;
}

Result<control::Answer> ask_controller(const control::Ask& ask) {
  return ControllerClient().ask(ask);
}

}  // namespace swell::tools
