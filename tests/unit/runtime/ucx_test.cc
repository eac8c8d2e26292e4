// SPDX-License-Identifier: GPL-2.0-or-later
// UCX as it is installed here, over loopback and shared memory, between processes.
#include "runtime/transport/ucx_link.h"

#include <criterion/criterion.h>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

#include "runtime/live_steps.h"
#include "runtime/transport/ucx_api.h"
#include "runtime/wire/hash.h"
#include "support/tcp_peer.h"

#if __has_include(<ucp/api/ucp.h>)
#include <ucp/api/ucp.h>
namespace ucx = swell::runtime::ucx;
static_assert(sizeof(ucs_status_t) == sizeof(ucx::Status) && UCS_INPROGRESS == ucx::kInProgress &&
              UCS_ERR_LAST == ucx::kLastError);
static_assert(offsetof(ucp_params_t, features) == offsetof(ucx::ContextParams, features) &&
              offsetof(ucp_params_t, mt_workers_shared) ==
                  offsetof(ucx::ContextParams, mt_workers_shared) &&
              sizeof(ucp_params_t) <= sizeof(ucx::ContextParams));
static_assert(UCP_PARAM_FIELD_FEATURES == ucx::ContextParams::kFeatures &&
              UCP_PARAM_FIELD_MT_WORKERS_SHARED == ucx::ContextParams::kSharedByThreads &&
              UCP_FEATURE_TAG == ucx::ContextParams::kTags);
static_assert(offsetof(ucp_worker_params_t, thread_mode) ==
                  offsetof(ucx::WorkerParams, thread_mode) &&
              sizeof(ucp_worker_params_t) <= sizeof(ucx::WorkerParams) &&
              UCP_WORKER_PARAM_FIELD_THREAD_MODE == ucx::WorkerParams::kThreadMode &&
              UCS_THREAD_MODE_SERIALIZED == ucx::WorkerParams::kSerialized);
static_assert(offsetof(ucp_ep_params_t, address) == offsetof(ucx::EndpointParams, address) &&
              sizeof(ucp_ep_params_t) <= sizeof(ucx::EndpointParams) &&
              UCP_EP_PARAM_FIELD_REMOTE_ADDRESS == ucx::EndpointParams::kRemoteAddress);
static_assert(offsetof(ucp_tag_recv_info_t, length) == offsetof(ucx::Received, length) &&
              sizeof(ucp_tag_recv_info_t) == sizeof(ucx::Received));
static_assert(offsetof(ucp_request_param_t, flags) == offsetof(ucx::RequestParams, flags) &&
              offsetof(ucp_request_param_t, memory_type) ==
                  offsetof(ucx::RequestParams, memory_type) &&
              sizeof(ucp_request_param_t) <= sizeof(ucx::RequestParams) &&
              UCP_OP_ATTR_FIELD_MEMORY_TYPE == ucx::RequestParams::kMemoryType &&
              UCP_OP_ATTR_FLAG_NO_IMM_CMPL == ucx::RequestParams::kNotAtOnce);
#endif

using namespace live_steps;

namespace {

/// UCX over `transports` alone; the test is left out where it is not installed.
std::shared_ptr<const Ucx> opened(const char* transports, Ucx::Options options = {}) {
  setenv("UCX_TLS", transports, 1);
  if (options.devices.empty()) options.devices = "lo";
  auto ucx = Ucx::open(options);
  if (!ucx && ucx.error().message().find("libucp.so.0: cannot open") == 0)
    cr_skip_test("%s", ucx.error().message().c_str());
  cr_assert(ucx.ok(), "%s", ucx ? "" : ucx.error().message().c_str());
  return *ucx;
}

/// Another process that answers requests, as a shim does. REQUIRES: UCX is not open here yet, whose
/// threads a new process does not have.
class Peer {
 public:
  /// `does`: what it does once a way through UCX is there; it ends when that returns.
  Peer(const char* transports, const std::function<void(Channel&, UcxLink*)>& does)
      : listening_(listen_tcp("127.0.0.1").value()) {
    const pid_t own = getpid();
    pid_ = fork();
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != own) _exit(1);
    Channel channel = support::accept_with(listening_.get(), LiveJob::kKey).value();
    setenv("UCX_TLS", transports, 1);
    const auto ucx = Ucx::open({.devices = "lo"});
    const auto request = channel.receive();
    std::unique_ptr<UcxLink> link;
    if (ucx && request && request->op == kUcxOp)
      if (auto made = UcxLink::accept(*ucx, channel, request->body)) link = std::move(*made);
    does(channel, link.get());
    link.reset();
    _exit(0);
  }
  ~Peer() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  pid_t pid() const { return pid_; }
  std::shared_ptr<Channel> connect() const {
    return std::make_shared<Channel>(
        Channel::connect_tcp(address_of(listening_.get()), LiveJob::kKey, within(60s)).value());
  }

 private:
  const swell::Descriptor listening_;
  pid_t pid_ = 0;
};

std::byte byte_at(std::size_t i) { return static_cast<std::byte>(i * 7 + (i >> 9)); }

constexpr std::size_t kBytes = 8 << 20;
const std::vector<Run> kRuns{{100, 3'000'000, 1}, {7, 0, 2'500'000}, {3'000'001, 2'700'000, 4097}};

void check_bytes(const char* transports, const std::string& name) {
  Arena source = Arena::create(kBytes).value();
  for (std::size_t i = 0; i < kBytes; ++i) source.data()[i] = byte_at(i);
  const Peer peer(transports, [&](Channel& channel, UcxLink* link) {
    while (const auto message = channel.receive())
      if (!serve_bytes(
              channel, message->body, Sink::arena(source),
              [&](const Run& run) { return source.has(run.from, run.bytes); }, link))
        return;
  });
  const auto ucx = opened(transports);
  auto channel = peer.connect();
  auto link = UcxLink::connect(ucx, *channel);
  cr_assert(link.ok(), "%s", link ? "" : link.error().message().c_str());
  cr_assert((*link)->name().starts_with(name), "it is %s", (*link)->name().c_str());
  const auto transport = from_link(channel, std::move(*link), Memory::arena);
  const Arena target = Arena::create(kBytes).value();
  for (int turn = 0; turn < 3; ++turn) {
    const auto hash = transport->fetch(kRuns, Sink::arena(target), Checksum::xxhash);
    cr_assert(hash.ok(), "%s", hash ? "" : hash.error().message().c_str());
    for (const Run& run : kRuns)
      cr_assert_eq(std::memcmp(target.data() + run.to, source.data() + run.from, run.bytes), 0);
    cr_assert_eq(*hash, Sink::arena(target).hash_of(kRuns, Checksum::xxhash).value());
  }
  // Into the memory of a program, here of this one; and refused where it is not allowed.
  std::vector<Run> runs = kRuns;
  std::vector<std::byte> memory(kBytes);
  for (Run& run : runs) run.to += reinterpret_cast<std::uint64_t>(memory.data());
  const auto into = transport->fetch(runs, Sink::program(getpid()), Checksum::xxhash);
  cr_assert(into.ok(), "%s", into ? "" : into.error().message().c_str());
  for (const Run& run : kRuns)
    cr_assert_eq(std::memcmp(memory.data() + run.to, source.data() + run.from, run.bytes), 0);
  const std::vector<Run> outside{{kBytes, 0, 1}};
  cr_assert_eq(transport->fetch(outside, Sink::arena(target), Checksum::xxhash).error().message(),
               "another node's shim: 1 bytes at 8388608 are not of this state");
  cr_assert(transport->fetch(kRuns, Sink::arena(target), Checksum::none).ok(),
            "it goes on after that");
}

/// Returns how a transfer ends if its other end does this once the way is there.
std::string ending_with(const std::function<void()>& other_end, const char* transports,
                        std::chrono::milliseconds patience) {
  Ucx::Options options;
  options.patience = patience;
  const Peer peer(transports, [&](Channel&, UcxLink*) { other_end(); });
  const auto ucx = opened(transports, options);
  const auto channel = peer.connect();
  auto link = UcxLink::connect(ucx, *channel);
  cr_assert(link.ok(), "%s", link ? "" : link.error().message().c_str());
  std::vector<std::byte> memory(1 << 20);
  auto good = (*link)->receive(memory);
  if (good.ok()) good = (*link)->flush();
  return good ? "it came" : good.error().message();
}

}  // namespace

Test(ucx, state_comes_by_ucx_over_tcp, .timeout = 300) { check_bytes("tcp", "ucx tcp"); }
Test(ucx, state_comes_by_ucx_over_shared_memory, .timeout = 300) {
  check_bytes("sysv,cma", "ucx sysv");
}

Test(ucx, a_peer_that_is_killed_ends_the_transfer, .timeout = 300) {
  for (const char* transports : {"tcp", "sysv,cma"})
    cr_assert_eq(ending_with([] { raise(SIGKILL); }, transports, 10min), "the other side has left");
}

Test(ucx, a_peer_that_sends_nothing_is_given_up_after_a_time, .timeout = 300) {
  cr_assert_eq(ending_with([] { pause(); }, "tcp", 200ms), "UCX has moved nothing for 200 ms");
}

Test(ucx, a_missing_or_old_ucx_or_device_is_named) {
  const auto why = [](Ucx::Options options) {
    const auto ucx = Ucx::open(std::move(options));
    return ucx ? "" : ucx.error().message();
  };
  cr_assert_neq(why({.library = "libucp.so.of-nobody"}).find("cannot open shared object"),
                std::string::npos);
  cr_assert_eq(why({.library = "libc.so.6"}), "libc.so.6 has no ucp_get_version");
  for (const char* version : {"1.9.0", "2.0.0", "0.0.0"}) {
    setenv("SWELL_STAND_IN_UCX", version, 1);
    cr_assert_eq(
        why({.library = SWELL_STAND_IN_UCX}),
        std::string(SWELL_STAND_IN_UCX) + " is UCX " + version + "; 1.10 or a later 1 is needed");
  }
  setenv("SWELL_STAND_IN_UCX", "1.13.1", 1);
  cr_assert_eq(why({.library = SWELL_STAND_IN_UCX}),
               std::string(SWELL_STAND_IN_UCX) + " has no ucs_status_string");
}

Test(ucx, the_devices_are_those_of_the_card_that_has_the_address) {
  cr_assert_eq(ucx_devices_at("127.0.0.1", true), "lo");
  cr_assert_eq(ucx_devices_at("127.0.0.1", false), "");
  cr_assert_eq(ucx_devices_at("192.0.2.99", true), "", "no card here has it");
  cr_assert_eq(ucx_devices_at("localhost", true), "", "names are not looked up");
  std::string folder = support::fs::temp_directory_path() / "swell-ucx-XXXXXX";
  cr_assert_not_null(mkdtemp(folder.data()));
  for (const auto& [port, state] : {std::pair("mlx5_0/ports/1", "4: ACTIVE"),
                                    {"mlx5_0/ports/2", "1: DOWN"},
                                    {"mlx5_3/ports/1", "4: ACTIVE"}}) {
    const std::string path = folder + "/class/net/lo/device/infiniband/" + port;
    support::fs::create_directories(path);
    std::ofstream(path + "/state") << state << "\n";
  }
  cr_assert_eq(ucx_devices_at("127.0.0.1", false, folder), "mlx5_0:1,mlx5_3:1");
  support::fs::remove_all(folder);
}

/// From two shards to three ranks on six shims that are hosts of their own.
static SwitchReport resharded(LiveJob& job, const PlanShape& to) {
  const PlanShape from{1, 1, 2, 0};
  Coordinator coordinator(LiveJob::cluster(), live_steps::options());
  job.start(from);
  cr_assert(coordinator.begin(job.shims(from), 1).ok());
  const auto programs = job.start(to);
  const auto report = coordinator.switch_plan(job.shims(from), job.shims(to), 2).value();
  cr_assert(report.committed, "%s", report.summary().c_str());
  for (pid_t pid : programs) cr_assert_eq(job.wait(pid), 0);
  cr_assert(job.state(job.shims(to)) == unresized("6000"), "the same values, bit by bit");
  return report;
}

static std::set<std::string> paths_of(const SwitchReport& report) {
  std::set<std::string> paths;
  for (const PathBytes& path : report.paths) paths.insert(path.path);
  return paths;
}

Test(ucx, a_live_switch_goes_over_it_bitwise, .timeout = 300) {
  opened("tcp");
  LiveJob job(SWELL_EXAMPLE, 6, {"6000", "4", "12", "10", "200"}, true, {},
              [](int) { return Ucx::Options{.devices = "lo"}; });
  const auto report = resharded(job, {1, 2, 3, 1});
  const auto paths = paths_of(report);
  cr_assert(paths.contains("ucx tcp") && !paths.contains("tcp"), "%s", report.summary().c_str());
  cr_assert_eq(report.notes.size(), 0);
}

Test(ucx, where_one_end_has_none_state_goes_by_tcp_and_says_why, .timeout = 300) {
  opened("tcp");
  // The second of the old ranks has no library.
  LiveJob job(SWELL_EXAMPLE, 6, {"6000", "4", "12", "10", "200"}, true, {}, [](int shim) {
    Ucx::Options options{.devices = "lo"};
    if (shim == 1) options.library = "libucp.so.of-nobody";
    return options;
  });
  const auto report = resharded(job, {1, 2, 3, 1});
  const auto paths = paths_of(report);
  cr_assert(paths.contains("ucx tcp") && paths.contains("tcp"), "%s", report.summary().c_str());
  cr_assert_eq(report.notes.size(), 1);
  cr_assert_eq(
      report.notes.begin()->find("state comes by TCP, not UCX: libucp.so.of-nobody: cannot open"),
      0, "%s", report.notes.begin()->c_str());
}
