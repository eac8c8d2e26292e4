// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/host.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fmt/format.h>
#include <fstream>
#include <limits>
#include <optional>
#include <set>
#include <sstream>
#include <stdexcept>
#include <sys/resource.h>
#include <system_error>
#include <utility>

#include "base/mutex.h"
#include "control/background_thread.h"
#include "control/frame.h"
#include "control/printable.h"
#include "control/server.h"
#include "controller/conf_watch.h"
#include "controller/config.h"
#include "controller/controller.h"
#include "controller/history.h"
#include "controller/pacing.h"
#include "controller/place_file.h"
#include "controller/preemption_order.h"
#include "controller/site_advice.h"
#include "controller/type_choice.h"
#include "core/policy/registry.h"
#include "slurm/live_slurm.h"

namespace swell::controller {

namespace {

/// Why the expansions' place could not be kept for a start without swell.conf; empty: it could.
std::string place_problem();

using Clock = std::chrono::steady_clock;

/// How long changes are let gather before a round looks at them.
constexpr auto kDebounce = std::chrono::milliseconds(50);

/// Messages of one user's agents and tools that a round hears: the next round hears more of them.
constexpr int kMessagesOfUser = 256;
/// Share of a core that reading one user's messages takes at most: some hundred messages a second.
constexpr double kShareOfUser = 0.02;

double now_s() { return std::chrono::duration<double>(Clock::now().time_since_epoch()).count(); }

std::string new_nonce() {
  Result<std::string> nonce = control::new_nonce();
  if (!nonce) throw std::runtime_error(nonce.error().message());
  return std::move(*nonce);
}

/// Path of slurm.conf, for what is needed before slurmctld answers. Slurm's library sets SLURM_CONF
/// in slurmctld, however that was told of the file, before it loads plugins.
std::string slurm_conf_path() {
  const char* named = std::getenv("SLURM_CONF");
  return named != nullptr ? named : "/etc/slurm/slurm.conf";
}

/// One run of the controller's thread, and what it shares with slurmctld's own.
class Host final : public control::BackgroundThread {
 public:
  explicit Host(const LogSink& sink) : sink_(sink) {}

  Result<Admission> admit(const SubmitRequest& request, const ExpansionPlace& kept) {
    ExpansionPlace place;
    {
      Lock lock(mutex_);
      place = place_;
    }
    // A QOS or partition that swell.conf has named only since this controller started is reserved
    // for companions, too.
    if (kept.named_in(request.qos, request.partition) && !grant_in(request.comment)) place = kept;
    Result<Admission> admission =
        controller::admit(request, place, book_, now_s(), on_ && lowers_, advice_.gpu_types());
    if (admission && request.elastic && !admission->is_companion) {
      if (const Result<void> can = check_requeue(request, requeues_); !can) return can.error();
      {
        Lock lock(queue_mutex_);
        if (queue_ && on_ && !advice_.draining()) choose_type(request, *admission, *queue_);
      }
      const std::string advice = advice_.on(request);
      if (!advice.empty() && !admission->notice.empty()) admission->notice += '\n';
      admission->notice += advice;
    }
    wake();
    return admission;
  }

  Result<void> check(const ChangeRequest& request, const ExpansionPlace& kept) {
    ExpansionPlace place;
    {
      Lock lock(mutex_);
      place = place_;
    }
    if (kept.named_in(request.qos, request.partition)) place = kept;
    return check_change(request, place, book_);
  }

  std::optional<std::string> comment_with_tag(const ChangeRequest& request) const {
    return tags_.kept_in(request);
  }

  std::vector<JobId> reclaim_order() const { return book_.reclaim_order().get(); }
  bool is_on() const { return on_; }
  /// Stops logging. The sink's functions belong to the plugin, which Slurm unloads even if one of
  /// its threads is left behind.
  void mute() {
    const Lock lock(sink_mutex_);
    sink_ = {};
  }

 private:
  /// Follows Elasticity in swell.conf; all else of it is for the next start of slurmctld.
  void follow_conf(Controller& controller) {
    const auto read = watch_->changed();
    if (!read) return;
    if (!*read)
      return error(
          fmt::format("swell.conf has changed and is not used: {}", read->error().message()));
    draining_ = (*read)->draining || !(*read)->enabled;
    use_draining(controller);
    Config rest = **read;
    rest.enabled = config_.enabled;
    rest.draining = config_.draining;
    if (rest != last_read_)
      info(
          "swell.conf has changed: all but Elasticity is used from the next start of slurmctld on");
    last_read_ = rest;
  }

  void use_draining(Controller& controller) {
    controller.set_draining(draining_);
    advice_.set_draining(draining_);
    lowers_ = config_.lowers_requests && !draining_;
  }

  /// Reads swell.conf, unless an earlier loop has read it: a loop that is begun again keeps those
  /// values, and follow_conf() checks the file's present text. Returns false if elasticity stays
  /// off.
  bool read_conf(const std::string& path) {
    if (watch_) return true;
    ConfWatch watch(path);
    const Result<Config> loaded = load_config(path);
    if (!loaded) {
      error("elasticity is off: " + loaded.error().message());
      return false;
    }
    if (!loaded->enabled) {
      info("elasticity is off: Elasticity=no in " + path);
      return false;
    }
    config_ = last_read_ = *loaded;
    draining_ = config_.draining;
    watch_ = std::move(watch);
    Lock lock(mutex_);
    place_ = {config_.expansion_qos, config_.expansion_partition};
    return true;
  }

  // Log lines may quote users' input, and so are made printable.
  void info(const std::string& text) const {
    const Lock lock(sink_mutex_);
    if (sink_.info != nullptr) sink_.info(("swell: " + control::printable(text)).c_str());
  }
  void error(const std::string& text) const {
    const Lock lock(sink_mutex_);
    if (sink_.error != nullptr) sink_.error(("swell: " + control::printable(text)).c_str());
  }

  void failed(const char* reason) noexcept override {
    on_ = false;
    try {
      const bool ran_long = Clock::now() - began_ > control::kMaxLoopPause;
      if (std::exchange(said_off_, reason) == reason && !ran_long) return;
      error(
          fmt::format("elasticity is off: {}; the controller is started again, after {} s at most",
                      reason, control::kMaxLoopPause.count()));
    } catch (...) {  // out of memory: it is off all the same
    }
  }

  void loop() override {
    began_ = Clock::now();
    control_loop();
    on_ = false;
  }

  void control_loop() {
    const Result<slurm::ControllerConfig> slurm_config = wait_for_slurmctld();
    if (!slurm_config) return;
    requeues_ = slurm_config->requeues;
    if (!read_conf(control::swell_conf_path(slurm_config->slurm_conf))) return;

    // Offers of a controller that failed: its successor knows them from the state file alone.
    book_.take_expired(std::numeric_limits<double>::infinity());
    std::unique_ptr<control::Server> server = start_server(config_, *slurm_config);
    if (!server) return;
    const std::unique_ptr<slurm::SlurmApi> slurm = slurm::make_live_slurm();
    const std::unique_ptr<History> history = open_history(config_, *slurm_config);
    Controller::Parts parts;
    parts.config = config_;
    parts.history = history.get();
    parts.slurm = slurm.get();
    parts.server = server.get();
    parts.book = &book_;
    parts.tags = &tags_;
    parts.fabric_files = slurm::find_fabric_files;
    const policy::Preemption preemption = preemption_order(*slurm_config);
    parts.preemption = preemption;
    parts.state_path = slurm_config->state_save_location + "/swell_state";
    parts.place_problem = place_problem();
    parts.log = [this](const std::string& text) { info(text); };
    parts.nonce = new_nonce;
    parts.wake = [self = weak_from_this()] {
      if (const auto host = self.lock()) host->wake();
    };
    Controller controller(std::move(parts));
    use_draining(controller);
    on_ = true;
    if (preemption != policy::Preemption::as_reclaimed)
      info(fmt::format(
          "without Swell's select plugin Slurm preempts the {} companions first, and pending jobs get the same ones back",
          slurm_config->preempts_youngest_first ? "youngest" : "oldest"));
    info(fmt::format("the controller is ready: policy {}; agents at port {}",
                     policy::policy_without_profiles(config_.policy), server->port()));

    while (true) {
      follow_conf(controller);
      const double due = controller.cycle(now_s());
      learn_queue(controller);
      advice_.learn(controller.snapshot(), config_, slurm->changes_gpu_types());
      controller.set_max_grace(advice_.max_grace_s());
      if (pause(rest_after(controller.last_own_s(), config_.poll_interval_s)))
        return controller.finish();
      if (wait(Clock::time_point(
                   std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(due))),
               kDebounce))
        return controller.finish();
    }
  }

  /// Makes the queue anew by which types are chosen, where there are several: no more than a tenth
  /// of this thread's time.
  void learn_queue(const Controller& controller) {
    if (controller.looks() == queue_looks_ || Clock::now() < queue_due_) return;
    const Clock::time_point begin = Clock::now();
    std::unique_ptr<GpuQueue> queue;
    std::set<std::string_view> types;
    for (const slurm::NodeRecord& node : controller.snapshot().nodes)
      for (const slurm::GpuRequest& gpus : node.gpus) types.insert(gpus.type);
    if (types.size() > 1) queue = std::make_unique<GpuQueue>(controller.snapshot(), true);
    queue_looks_ = controller.looks();
    queue_due_ = Clock::now() + 10 * (Clock::now() - begin);
    Lock lock(queue_mutex_);
    queue_ = std::move(queue);
  }

  std::unique_ptr<History> open_history(const Config& config,
                                        const slurm::ControllerConfig& slurm_config) {
    if (config.history_days == 0) return nullptr;
    if (!history_is_built_in()) {
      info("no history is kept: this Swell was built without SQLite");
      return nullptr;
    }
    History::Options options;
    options.path = slurm_config.state_save_location + "/swell_history.sqlite";
    options.keep_days = config.history_days;
    options.log = [this](const std::string& text) { info(text); };
    options.ready = [self = weak_from_this()] {
      if (const auto host = self.lock()) host->wake();
    };
    return std::make_unique<History>(std::move(options));
  }

  Result<slurm::ControllerConfig> wait_for_slurmctld() {
    // The scheduler plugin is loaded before slurmctld answers RPCs, which takes a moment.
    if (pause(std::chrono::milliseconds(300))) return Error("stopping");
    while (true) {
      Result<slurm::ControllerConfig> config = slurm::load_controller_config();
      if (config) return config;
      if (pause(std::chrono::seconds(1))) return Error("stopping");
    }
  }

  std::unique_ptr<control::Server> start_server(const Config& config,
                                                const slurm::ControllerConfig& slurm_config) {
    control::Server::Options options;
    options.address = config.control_address;
    // A backup that has taken over uses its own host: agents try all of SlurmctldHost.
    if (options.address.empty()) options.address = slurm_config.own_host;
    const auto port = static_cast<std::uint16_t>(config.control_port);
    options.ports = {port, port};
    options.munge_socket = slurm::munge_socket_of(slurm_config.auth_info);
    options.max_taken_of_user = kMessagesOfUser;
    options.user_share = kShareOfUser;
    if (rlimit files{}; getrlimit(RLIMIT_NOFILE, &files) == 0) options.leave_files(files.rlim_cur);
    options.log = [this](const std::string& text) { info(text); };
    bool said = false;
    while (true) {
      auto server = control::Server::start(options, [self = weak_from_this()] {
        if (const auto host = self.lock()) host->wake();
      });
      if (server) return std::move(*server);
      if (!said) error(fmt::format("agents cannot be served yet: {}", server.error().message()));
      said = true;
      if (pause(std::chrono::seconds(2))) return nullptr;
    }
  }

  mutable Mutex sink_mutex_;  ///< held while the sink is called
  LogSink sink_ SWELL_GUARDED_BY(sink_mutex_);
  GrantBook book_;
  TagBook tags_;
  std::atomic<bool> on_{false};
  // Written by the controller's thread alone. Other threads read the atomic ones.
  Clock::time_point began_;           ///< the loop that runs, or failed last
  std::string said_off_;              ///< why a loop failed, as the log has it
  std::optional<ConfWatch> watch_;    ///< none: no swell.conf was read that turns elasticity on
  Config config_;                     ///< the first that did
  Config last_read_;                  ///< what the file said last, but for Elasticity
  bool draining_ = false;             ///< as it said last
  std::atomic<bool> requeues_{true};  ///< JobRequeue; until it is known, its default
  std::atomic<bool> lowers_{false};   ///< jobs that consent are submitted for fewer GPUs
  SiteAdvice advice_;
  long queue_looks_ = -1;  ///< the look that `queue_` is of
  Clock::time_point queue_due_;
  Mutex queue_mutex_;
  std::unique_ptr<GpuQueue> queue_
      SWELL_GUARDED_BY(queue_mutex_);  ///< null: one GPU type alone, or nothing is known yet
  Mutex mutex_;
  ExpansionPlace place_
      SWELL_GUARDED_BY(mutex_);  ///< what swell.conf said when this controller started
};

// Never destroyed: a thread left behind may outlive static destructors.
struct Shared {
  Mutex mutex;
  std::shared_ptr<Host> host SWELL_GUARDED_BY(mutex);
  /// Place kept for companions, as swell.conf named it last; nothing: not read yet.
  std::optional<ExpansionPlace> place SWELL_GUARDED_BY(mutex);
  std::string place_problem
      SWELL_GUARDED_BY(mutex);  ///< why `place` could not be kept; empty: it was
  std::optional<LogSink> unstarted
      SWELL_GUARDED_BY(mutex);  ///< of a controller whose thread could not be started yet
};
Shared& shared() {
  static Shared* const instance = new Shared;
  return *instance;
}
std::shared_ptr<Host> current_host() {
  Lock lock(shared().mutex);
  return shared().host;
}
std::string place_problem() {
  Lock lock(shared().mutex);
  return shared().place_problem;
}

/// Returns false where the controller's thread cannot be started. With shared().mutex held, so that
/// there is one at the most, and none after stop_controller().
bool try_to_start(const LogSink& sink) SWELL_REQUIRES(shared().mutex) {
  auto host = std::make_shared<Host>(sink);
  try {
    host->start();
  } catch (const std::system_error&) { host.reset(); }
  shared().unstarted = host ? std::nullopt : std::optional(sink);
  shared().host = std::move(host);
  return shared().host != nullptr;
}

/// Where the controller's thread could not be started, tries again: slurmctld itself goes on only
/// where it can start threads.
void start_what_is_due() {
  Lock lock(shared().mutex);
  if (const std::optional<LogSink> sink = shared().unstarted) try_to_start(*sink);
}

ExpansionPlace kept_place() {
  {
    Lock lock(shared().mutex);
    if (shared().place) return *shared().place;
  }
  read_expansion_place();
  Lock lock(shared().mutex);
  return shared().place.value_or(ExpansionPlace{});
}

}  // namespace

void start_controller(const LogSink& sink) noexcept {
  try {
    stop_controller();
    read_expansion_place();
    Lock lock(shared().mutex);
    if (!try_to_start(sink) && sink.error != nullptr)
      sink.error(
          "swell: elasticity is off: no thread can be started; it is tried again at each submission");
  } catch (const std::exception& problem) {
    if (sink.error != nullptr) sink.error(problem.what());
  }
}

void stop_controller() noexcept {
  try {
    std::shared_ptr<Host> host;
    {
      Lock lock(shared().mutex);
      host = std::move(shared().host);
      shared().unstarted.reset();
    }
    if (!host) return;
    host->stop(std::chrono::seconds(2));
    host->mute();
  } catch (...) {  // nothing can be done about it, and slurmctld is on its way out
  }
}

void wake_controller() noexcept {
  read_expansion_place();
  try {
    start_what_is_due();
    if (const auto host = current_host()) host->wake();
  } catch (...) {  // the next poll finds what happened
  }
}

bool elasticity_is_on() noexcept {
  try {
    const auto host = current_host();
    return host && host->is_on();
  } catch (...) { return false; }
}

Result<Admission> admit_submission(const SubmitRequest& request) {
  const ExpansionPlace place = kept_place();
  start_what_is_due();
  if (const auto host = current_host()) return host->admit(request, place);
  GrantBook none;
  return admit(request, place, none, 0);
}

Result<void> check_submitted_change(const ChangeRequest& request) {
  const ExpansionPlace place = kept_place();
  if (const auto host = current_host()) return host->check(request, place);
  return check_change(request, place, GrantBook{});
}

std::optional<std::string> comment_with_tag(const ChangeRequest& request) {
  const auto host = current_host();
  return host ? host->comment_with_tag(request) : std::nullopt;
}

PlaceKnown read_expansion_place() noexcept {
  try {
    const std::string slurm_conf = slurm_conf_path();
    std::ifstream in(control::swell_conf_path(slurm_conf));
    std::ostringstream text;
    text << in.rdbuf();
    const ExpansionPlace named = control::expansion_place_in(text.str());
    Lock lock(shared().mutex);
    std::optional<ExpansionPlace>& place = shared().place;
    if (named.is_named() && place == named) return PlaceKnown::from_conf;
    const auto memory = [&] { return state_folder(slurm_conf) + "/swell_place"; };
    if (!place) place = load_place(memory());
    if (!named.is_named())
      return place->is_named() ? PlaceKnown::from_before : PlaceKnown::not_at_all;
    // If it cannot be written, only a start without swell.conf lacks it.
    if (place != named) {
      const Result<void> kept = save_place(memory(), named);
      shared().place_problem = kept ? "" : kept.error().message();
    }
    place = named;
    return PlaceKnown::from_conf;
  } catch (...) { return PlaceKnown::not_at_all; }
}

extern "C" std::size_t swell_reclaim_order(std::uint32_t* companions, std::size_t room) noexcept {
  try {
    const auto host = current_host();
    if (!host) return 0;
    const std::vector<JobId> order = host->reclaim_order();
    std::copy_n(order.begin(), std::min(room, order.size()), companions);
    return order.size();
  } catch (...) { return 0; }
}

std::string base_scheduler() noexcept {
  try {
    if (const Result<Config> config = Config::load(control::swell_conf_path(slurm_conf_path())))
      return config->base_scheduler;
  } catch (...) {  // the default serves
  }
  return "sched/backfill";
}

}  // namespace swell::controller
