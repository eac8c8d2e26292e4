// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/ucx.h"

#include <algorithm>
#include <arpa/inet.h>
#include <array>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <ifaddrs.h>
#include <map>
#include <mutex>
#include <poll.h>
#include <sched.h>
#include <set>
#include <sys/random.h>
#include <thread>
#include <vector>

#include "runtime/transport.h"
#include "runtime/ucx_api.h"
#include "runtime/wire.h"

namespace swell::runtime {

using namespace ucx;

struct Ucx::Functions {
  unsigned version[3] = {};
  void (*get_version)(unsigned*, unsigned*, unsigned*);
  const char* (*to_text)(Status);
  Status (*read_config)(const char*, const char*, void**);
  Status (*modify_config)(void*, const char*, const char*);
  void (*release_config)(void*);
  Status (*init)(unsigned, unsigned, const ContextParams*, const void*, void**);
  void (*cleanup)(void*);
  Status (*make_worker)(void*, const WorkerParams*, void**);
  void (*destroy_worker)(void*);
  Status (*get_address)(void*, void**, std::size_t*);
  void (*release_address)(void*, void*);
  Status (*make_endpoint)(void*, const EndpointParams*, void**);
  void (*print_endpoint)(void*, std::FILE*);
  unsigned (*progress)(void*);
  StatusPointer (*send)(void*, const void*, std::size_t, std::uint64_t, const RequestParams*);
  StatusPointer (*receive)(void*, void*, std::size_t, std::uint64_t, std::uint64_t,
                           const RequestParams*);
  Status (*check)(void*);
  Status (*check_received)(void*, Received*);
  void (*cancel)(void*, void*);
  void (*free)(void*);
};

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxAddress = 65536;
constexpr std::size_t kWindow = 16;      ///< messages under way at once
constexpr std::size_t kTried = 1 << 18;  ///< large enough for the way that large messages take

/// Keeps the handlers of signals as they were: UCX sets some as it is loaded.
class SignalsKept {
 public:
  SignalsKept() {
    for (int each = 1; each < NSIG; ++each) sigaction(each, nullptr, &before_[at(each)]);
  }
  ~SignalsKept() {
    for (int each = 1; each < NSIG; ++each) sigaction(each, &before_[at(each)], nullptr);
  }
  SignalsKept(const SignalsKept&) = delete;
  SignalsKept& operator=(const SignalsKept&) = delete;

 private:
  static std::size_t at(int number) noexcept { return static_cast<std::size_t>(number); }
  struct sigaction before_[NSIG];
};

template <typename Function>
Result<void> find(void* library, const std::string& path, const char* name, Function& function) {
  void* const found = dlsym(library, name);
  if (found == nullptr) return Error(fmt::format("{} has no {}", path, name));
  std::memcpy(&function, &found, sizeof found);
  return {};
}

Result<void> find_all(void* library, const std::string& path, Ucx::Functions& all) {
  auto good = find(library, path, "ucp_get_version", all.get_version);
  if (!good) return good;
  unsigned* version = all.version;
  all.get_version(&version[0], &version[1], &version[2]);
  if (version[0] != Ucx::kMajor || version[1] < Ucx::kMinMinor)
    return Error(fmt::format("{} is UCX {}.{}.{}; {}.{} or a later {} is needed", path, version[0],
                             version[1], version[2], Ucx::kMajor, Ucx::kMinMinor, Ucx::kMajor));
  const auto also = [&](const char* name, auto& function) {
    if (good.ok()) good = find(library, path, name, function);
  };
  also("ucs_status_string", all.to_text);
  also("ucp_config_read", all.read_config);
  also("ucp_config_modify", all.modify_config);
  also("ucp_config_release", all.release_config);
  also("ucp_init_version", all.init);
  also("ucp_cleanup", all.cleanup);
  also("ucp_worker_create", all.make_worker);
  also("ucp_worker_destroy", all.destroy_worker);
  also("ucp_worker_get_address", all.get_address);
  also("ucp_worker_release_address", all.release_address);
  also("ucp_ep_create", all.make_endpoint);
  also("ucp_ep_print_info", all.print_endpoint);
  also("ucp_worker_progress", all.progress);
  also("ucp_tag_send_nbx", all.send);
  also("ucp_tag_recv_nbx", all.receive);
  also("ucp_request_check_status", all.check);
  also("ucp_tag_recv_request_test", all.check_received);
  also("ucp_request_cancel", all.cancel);
  also("ucp_request_free", all.free);
  return good;
}

/// The library's functions. It is never closed: it leaves a thread behind.
Result<const Ucx::Functions*> load(const std::string& path) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Ucx::Functions>> loaded;
  std::lock_guard lock(mutex);
  auto& known = loaded[path];
  if (known != nullptr) return known.get();
  const SignalsKept kept;
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    return Error(why != nullptr ? why : path + " cannot be loaded");
  }
  auto functions = std::make_unique<Ucx::Functions>();
  if (auto good = find_all(library, path, *functions); !good) return good.error();
  known = std::move(functions);
  return known.get();
}

/// Of what UCX prints of an endpoint, the transports: "tcp", "sysv+cma".
std::string transports_of(std::string_view printed) {
  std::string names;
  std::set<std::string> seen;
  for (std::size_t at = 0; (at = printed.find("lane[", at)) != printed.npos; ++at) {
    const std::string_view line = printed.substr(at, printed.find('\n', at) - at);
    const auto slash = line.find('/');
    if (slash == line.npos) continue;
    const auto begin = line.find_last_of(": ", slash) + 1;
    std::string name(line.substr(begin, slash - begin));
    if (name.empty() || !seen.insert(name).second) continue;
    names += names.empty() ? name : "+" + name;
  }
  return names;
}

bool is_readable(const Channel& channel) {
  pollfd polled{channel.fd(), POLLIN, 0};
  return poll(&polled, 1, 0) > 0;
}

/// What is sent to try a way out.
std::byte tried(std::size_t i) noexcept { return static_cast<std::byte>(i * 31 + (i >> 8)); }

}  // namespace

Result<std::shared_ptr<const Ucx>> Ucx::open(Options options) {
  const auto functions = load(options.library);
  if (!functions) return functions.error();
  std::shared_ptr<Ucx> made(new Ucx(std::move(options), **functions));
  if (auto good = made->begin(); !good) return good.error();
  return std::shared_ptr<const Ucx>(std::move(made));
}

Result<void> Ucx::begin() {
  version_ =
      fmt::format("{}.{}.{}", functions_.version[0], functions_.version[1], functions_.version[2]);
  const auto failure = [&](const char* what, Status status) {
    return Error(fmt::format("UCX {}: {}: {}", version_, what, functions_.to_text(status)));
  };
  const SignalsKept kept;
  void* config = nullptr;
  if (const Status status = functions_.read_config(nullptr, nullptr, &config); status != kOk)
    return failure("reading its configuration", status);
  Status status = kOk;
  if (!options_.devices.empty())
    status = functions_.modify_config(config, "NET_DEVICES", options_.devices.c_str());
  // Who fetches reads, and nobody writes into another's memory: what is called off stays as it is.
  if (status == kOk) status = functions_.modify_config(config, "RNDV_SCHEME", "get_zcopy");
  ContextParams params;
  params.field_mask = ContextParams::kFeatures | ContextParams::kSharedByThreads;
  params.features = ContextParams::kTags;
  params.mt_workers_shared = 1;
  if (status == kOk) status = functions_.init(kMajor, kMinMinor, &params, config, &context_);
  functions_.release_config(config);
  if (status == kOk) return {};
  context_ = nullptr;
  return failure(fmt::format("network devices \"{}\"", options_.devices).c_str(), status);
}

Ucx::~Ucx() {
  if (context_ != nullptr) functions_.cleanup(context_);
}

Result<std::string> UcxLink::open() {
  const auto& ucx = ucx_->functions_;
  WorkerParams params;
  params.field_mask = WorkerParams::kThreadMode;
  params.thread_mode = WorkerParams::kSerialized;
  if (const Status status = ucx.make_worker(ucx_->context_, &params, &worker_); status != kOk) {
    worker_ = nullptr;
    return Error(fmt::format("making a worker of UCX: {}", ucx.to_text(status)));
  }
  void* address = nullptr;
  std::size_t bytes = 0;
  if (const Status status = ucx.get_address(worker_, &address, &bytes); status != kOk)
    return Error(fmt::format("asking UCX for its address: {}", ucx.to_text(status)));
  std::string copy(static_cast<const char*>(address), bytes);
  ucx.release_address(worker_, address);
  patience_ = ucx_->options_.meet_limit;
  return copy;
}

Result<void> UcxLink::join(std::string_view address) {
  const auto& ucx = ucx_->functions_;
  EndpointParams params;
  params.field_mask = EndpointParams::kRemoteAddress;
  params.address = address.data();
  if (const Status status = ucx.make_endpoint(worker_, &params, &endpoint_); status != kOk) {
    endpoint_ = nullptr;
    return Error(fmt::format("UCX finds no way to the other end: {}", ucx.to_text(status)));
  }
  return {};
}

Result<std::unique_ptr<UcxLink>> UcxLink::connect(std::shared_ptr<const Ucx> ucx,
                                                  Channel& channel) {
  std::unique_ptr<UcxLink> link(new UcxLink(std::move(ucx), channel));
  const auto own = link->open();
  if (!own) return own.error();
  if (auto sent = channel.send(kUcxOp, Writer().text(*own).take()); !sent) return sent.error();
  const auto answer = channel.receive(within(link->patience_));
  if (!answer) return answer.error();
  Reader reader(answer->body);
  if (answer->op != kDoneOp) return Error(reader.text(4096));
  link->tag_ = reader.get<std::uint64_t>();
  const std::string theirs = reader.text(kMaxAddress);
  Result<void> good;
  if (!reader.done() || theirs.empty()) good = Error("the other end gave no address of UCX");
  if (good.ok()) good = link->join(theirs);
  if (good.ok()) good = link->receive_trial();
  // The other end waits for it.
  const auto told = good ? channel.send(kDoneOp, {})
                         : channel.send(kRefusedOp, Writer().text(good.error().message()).take());
  if (!told) return told.error();
  if (!good) return good.error();
  link->begin_work();
  return link;
}

Result<std::unique_ptr<UcxLink>> UcxLink::accept(std::shared_ptr<const Ucx> ucx, Channel& channel,
                                                 std::string_view request) {
  std::unique_ptr<UcxLink> link(new UcxLink(std::move(ucx), channel));
  Reader reader(request);
  const std::string theirs = reader.text(kMaxAddress);
  const auto refuse = [&](const std::string& why) -> Result<std::unique_ptr<UcxLink>> {
    if (auto sent = channel.send(kRefusedOp, Writer().text(why).take()); !sent) return sent.error();
    return std::unique_ptr<UcxLink>();
  };
  if (!reader.done() || theirs.empty()) return refuse("a request for UCX cannot be read");
  const auto own = link->open();
  if (!own) return refuse(own.error().message());
  if (getrandom(&link->tag_, sizeof link->tag_, 0) != sizeof link->tag_)
    return refuse("no random numbers are to be had");
  if (auto joined = link->join(theirs); !joined) return refuse(joined.error().message());
  if (auto sent = channel.send(kDoneOp, Writer().put(link->tag_).text(*own).take()); !sent)
    return sent.error();
  if (auto good = link->send_trial(); !good) {
    if (channel.has_left()) return good.error();
    return std::unique_ptr<UcxLink>();
  }
  link->begin_work();
  return link;
}

/// Sends what the other end tries the way out with: both are reached, and large messages go the way
/// that they will go. Returns when the other end has said something.
Result<void> UcxLink::send_trial() {
  std::vector<std::byte> bytes(kTried);
  for (std::size_t i = 0; i < kTried; ++i) bytes[i] = tried(i);
  auto good = send(bytes);
  const auto end = Clock::now() + 2 * patience_;
  // Messages arrive only while both ends work.
  for (unsigned idle = 0; good.ok() && !is_readable(channel_);) {
    progress(idle);
    if (Clock::now() > end) good = Error("the other end does not say whether UCX reached it");
  }
  if (!good) {
    give_up();  // before its memory goes
    return good;
  }
  const auto verdict = channel_.receive(within(patience_));
  if (!verdict || verdict->op != kDoneOp) {
    give_up();
    if (!verdict) return verdict.error();
    return Error(Reader(verdict->body).text(4096));
  }
  good = flush();
  if (!good) give_up();
  return good;
}

Result<void> UcxLink::receive_trial() {
  std::vector<std::byte> bytes(kTried);
  auto good = receive(bytes);
  if (good.ok()) good = flush();
  if (!good) {
    give_up();  // before its memory goes
    return good;
  }
  for (std::size_t i = 0; i < kTried; ++i)
    if (bytes[i] != tried(i)) return Error("UCX delivered other bytes than were sent");
  return {};
}

/// The way is good.
void UcxLink::begin_work() {
  char* text = nullptr;
  std::size_t size = 0;
  if (std::FILE* file = open_memstream(&text, &size); file != nullptr) {
    ucx_->functions_.print_endpoint(endpoint_, file);
    std::fclose(file);
    name_ = transports_of({text, size});
    std::free(text);
  }
  name_ = name_.empty() ? "ucx" : "ucx " + name_;
  patience_ = ucx_->options_.patience;
}

/// Lets UCX work. Returns whether something has moved.
bool UcxLink::progress(unsigned& idle) const {
  if (ucx_->functions_.progress(worker_) != 0) {
    idle = 0;
    return true;
  }
  // The other end may be waiting for this core, or for a disk.
  if (++idle > 4096) std::this_thread::sleep_for(std::chrono::microseconds(50));
  else if (idle > 64) sched_yield();
  return false;
}

Result<void> UcxLink::begin(void* request, std::size_t bytes, bool is_incoming) {
  if (is_error(request))
    return Error(fmt::format("UCX: {}", ucx_->functions_.to_text(error_of(request))));
  if (request != nullptr) under_way_.push_back({request, bytes, is_incoming});
  return {};
}

Result<void> UcxLink::send(std::span<const std::byte> bytes) {
  if (under_way_.size() == kWindow)
    if (auto good = finish_first(); !good) return good;
  RequestParams params;
  params.op_attr_mask = RequestParams::kMemoryType;
  return begin(ucx_->functions_.send(endpoint_, bytes.data(), bytes.size(), tag_, &params),
               bytes.size(), false);
}

Result<void> UcxLink::receive(std::span<std::byte> bytes) {
  if (under_way_.size() == kWindow)
    if (auto good = finish_first(); !good) return good;
  RequestParams params;
  // Only a request says how much has come.
  params.op_attr_mask = RequestParams::kMemoryType | RequestParams::kNotAtOnce;
  return begin(
      ucx_->functions_.receive(worker_, bytes.data(), bytes.size(), tag_, UINT64_MAX, &params),
      bytes.size(), true);
}

Result<void> UcxLink::finish_first() {
  const auto& ucx = ucx_->functions_;
  const Message message = under_way_.front();
  auto end = Clock::now() + patience_;
  Status status = kOk;
  Received received;
  unsigned idle = 0;
  for (unsigned turns = 1;; ++turns) {
    status = message.is_incoming ? ucx.check_received(message.request, &received)
                                 : ucx.check(message.request);
    if (status != kInProgress) break;
    const bool moves = progress(idle);
    if (turns % 256 != 0) continue;
    if (moves) end = Clock::now() + patience_;
    if (channel_.has_left()) return Error("the other side has left");
    if (Clock::now() > end)
      return Error(fmt::format("UCX has moved nothing for {} ms", patience_.count()));
  }
  under_way_.pop_front();
  ucx.free(message.request);
  if (status != kOk) return Error(fmt::format("UCX: {}", ucx.to_text(status)));
  if (message.is_incoming && received.length != message.bytes)
    return Error(
        fmt::format("UCX delivered {} bytes; {} were asked for", received.length, message.bytes));
  return {};
}

Result<void> UcxLink::flush() {
  while (!under_way_.empty())
    if (auto good = finish_first(); !good) return good;
  return {};
}

/// Takes back what is under way: afterwards nothing is written into its memory.
void UcxLink::give_up() noexcept {
  const auto& ucx = ucx_->functions_;
  for (const Message& message : under_way_)
    if (message.is_incoming) ucx.cancel(worker_, message.request);
  for (const Message& message : under_way_) {
    for (int turns = 0; turns < 1000 && ucx.check(message.request) == kInProgress; ++turns)
      ucx.progress(worker_);
    ucx.free(message.request);
  }
  under_way_.clear();
  if (worker_ != nullptr) ucx.destroy_worker(std::exchange(worker_, nullptr));
  endpoint_ = nullptr;
}

UcxLink::~UcxLink() { give_up(); }

std::string ucx_devices_at(const std::string& address, bool or_itself, const std::string& sysfs) {
  in6_addr wanted{};
  int family = AF_INET;
  if (inet_pton(AF_INET, address.c_str(), &wanted) != 1) {
    family = AF_INET6;
    if (inet_pton(AF_INET6, address.c_str(), &wanted) != 1) return "";
  }
  std::string interface;
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return "";
  for (const ifaddrs* each = all; each != nullptr; each = each->ifa_next) {
    if (each->ifa_addr == nullptr || each->ifa_addr->sa_family != family) continue;
    const auto* four = reinterpret_cast<const sockaddr_in*>(each->ifa_addr);
    const auto* six = reinterpret_cast<const sockaddr_in6*>(each->ifa_addr);
    const bool same = family == AF_INET
                          ? std::memcmp(&four->sin_addr, &wanted, sizeof four->sin_addr) == 0
                          : std::memcmp(&six->sin6_addr, &wanted, sizeof wanted) == 0;
    if (same) interface = each->ifa_name;
  }
  freeifaddrs(all);
  if (interface.empty()) return "";
  namespace fs = std::filesystem;
  std::set<std::string> ports;
  std::error_code ignored;
  for (const auto& device : fs::directory_iterator(
           fmt::format("{}/class/net/{}/device/infiniband", sysfs, interface), ignored))
    for (const auto& port : fs::directory_iterator(device.path() / "ports", ignored)) {
      std::ifstream file(port.path() / "state");
      std::string state;
      std::getline(file, state);
      if (state.find("ACTIVE") != state.npos)
        ports.insert(device.path().filename().string() + ":" + port.path().filename().string());
    }
  std::string devices;
  for (const std::string& port : ports) devices += devices.empty() ? port : "," + port;
  return devices.empty() && or_itself ? interface : devices;
}

}  // namespace swell::runtime
