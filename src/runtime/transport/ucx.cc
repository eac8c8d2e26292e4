// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/transport/ucx.h"

#include <arpa/inet.h>
#include <csignal>
#include <cstring>
#include <dlfcn.h>
#include <filesystem>
#include <fmt/format.h>
#include <fstream>
#include <ifaddrs.h>
#include <map>
#include <set>

#include "base/mutex.h"
#include "runtime/transport/ucx_functions.h"

namespace swell::runtime {

using namespace ucx;

namespace {

/// Restores the signal handlers, some of which UCX sets while it is loaded.
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

/// Loads the library's functions. It is never closed, because it leaves a thread running.
Result<const Ucx::Functions*> load(const std::string& path) {
  static Mutex mutex;
  static std::map<std::string, std::unique_ptr<Ucx::Functions>> loaded;
  Lock lock(mutex);
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

std::string first_line_of(const std::filesystem::path& path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

/// Returns whether port `number` of an RDMA device is up. `device`: its folder.
bool is_active(const std::filesystem::path& device, const std::string& number) {
  const std::string state = first_line_of(device / "ports" / number / "state");
  return state.find("ACTIVE") != state.npos;
}

std::string joined(const std::set<std::string>& names) {
  std::string all;
  for (const std::string& name : names) all += all.empty() ? name : "," + name;
  return all;
}

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
  // Receivers read, and no peer writes into another's memory, so that a cancelled transfer changes
  // nothing later.
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

std::string ucx_devices_of(const std::string& ports, bool or_interfaces, const std::string& sysfs) {
  std::set<std::string> rdma, interfaces;
  for (std::size_t at = 0; at < ports.size();) {
    const std::string port = ports.substr(at, ports.find(',', at) - at);
    at += port.size() + 1;
    const auto colon = port.rfind(':');
    // Skip names that lead out of the folder of devices, such as "../x".
    if (colon == 0 || colon == port.npos || port[0] == '.' || port.find('/') != port.npos) continue;
    const std::string device = port.substr(0, colon);
    if (is_active(fmt::format("{}/class/infiniband/{}", sysfs, device), port.substr(colon + 1)))
      rdma.insert(port);
    else if (first_line_of(fmt::format("{}/class/net/{}/operstate", sysfs, device)) == "up")
      interfaces.insert(device);
  }
  return rdma.empty() && or_interfaces ? joined(interfaces) : joined(rdma);
}

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
    for (const auto& port : fs::directory_iterator(device.path() / "ports", ignored))
      if (is_active(device.path(), port.path().filename()))
        ports.insert(device.path().filename().string() + ":" + port.path().filename().string());
  return ports.empty() && or_itself ? interface : joined(ports);
}

}  // namespace swell::runtime
