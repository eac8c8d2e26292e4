// SPDX-License-Identifier: GPL-2.0-or-later
// In place of NCCL (libnccl.so.2) where a test needs one: communicators of two processes over a
// socket, for the stand-in of NVIDIA's driver; rank 0 must have made the id. Forbidden
// uses of NCCL are told in the file STAND_IN_NCCL_LOG, as "misuse: ...", beside "join" and "abort"
// for each communicator that has connected both directions, and that is aborted. The environment
// says more: STAND_IN_NCCL_VERSION (22707); STAND_IN_NCCL_FAILS and STAND_IN_NCCL_HANGS: where
// something fails, or never ends: id, init, abort (the call itself), joining, connecting (the first
// group in either direction), moving and group (those after it).
#include <algorithm>
#include <atomic>
#include <cerrno>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <fcntl.h>
#include <map>
#include <mutex>
#include <poll.h>
#include <random>
#include <set>
#include <string>
#include <sys/socket.h>
#include <sys/un.h>
#include <thread>
#include <unistd.h>
#include <vector>

namespace {

constexpr int kOk = 0, kCudaError = 1, kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5,
              kRemoteError = 6, kInProgress = 7;

struct UniqueId {
  char bytes[128];
};
struct Config {
  std::size_t size;
  unsigned magic, version;
  int blocking;
};
struct Operation {
  bool sends = false;
  char* at = nullptr;
  std::size_t bytes = 0;
};
struct Hello {
  int rank = 0, gpu = 0;
};

void log(const std::string& line) {
  const char* file = std::getenv("STAND_IN_NCCL_LOG");
  const int fd = file != nullptr ? open(file, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0600) : -1;
  const std::string text = line + "\n";
  if (fd >= 0 && write(fd, text.data(), text.size()) < 0) std::perror("stand-in NCCL");
  if (fd >= 0) close(fd);
}
int misuse(const std::string& what) {
  log("misuse: " + what);
  return kInvalidUsage;
}
bool is_set(const char* variable, const char* where) {
  const char* set = std::getenv(variable);
  return set != nullptr && std::strcmp(set, where) == 0;
}
bool fails(const char* where) { return is_set("STAND_IN_NCCL_FAILS", where); }
bool hangs(const char* where) { return is_set("STAND_IN_NCCL_HANGS", where); }
void hang_if(const char* where) {
  while (hangs(where)) pause();
}

/// Returns a function of the stand-in for the driver, which the process has open.
template <typename Function>
Function driver(const char* name) {
  void* const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_NOLOAD);
  return reinterpret_cast<Function>(library != nullptr ? dlsym(library, name) : nullptr);
}
int gpu_of_thread() {
  static const auto its = driver<int (*)()>("stand_in_gpu");
  return its != nullptr ? its() : -1;
}
void launch(void* stream, int more) {
  static const auto its = driver<void (*)(void*, int)>("stand_in_launch");
  its(stream, more);
}

// A thread that hangs here may use them while the process ends.
auto& mutex = *new std::mutex;                              // guards both
auto& listening = *new std::map<std::string, int>;          // by id, what this process has made
auto& communicators = *new std::set<struct Communicator*>;  // that are not aborted

sockaddr_un address_of(const std::string& id, socklen_t* size) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  id.copy(address.sun_path + 1, 32);  // of the abstract ones: no file
  *size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + 32);
  return address;
}

struct Communicator {
  int rank = 0, gpu = 0;
  std::string id;
  int fd = -1;
  std::atomic<int> state = kInProgress;
  std::atomic<bool> is_aborted = false;
  std::mutex mutex;  // guards both below
  std::condition_variable changed;
  std::deque<std::pair<std::vector<Operation>, void*>> groups;  // with their streams
  std::thread thread;
  std::atomic<int> launched = 0;  // groups
  int ran = 0;                    // groups, by `thread`

  /// Whether each direction has been connected by a group before this one.
  static bool is_connected(int groups_before) { return groups_before >= 2; }
  void work();
  int meet();
  int run(const std::vector<Operation>& group);
  bool all(char* at, std::size_t bytes, bool sends);
};

/// Moves all of it, or sees that it is aborted or the other one gone.
bool Communicator::all(char* at, std::size_t bytes, bool sends) {
  while (bytes > 0) {
    pollfd polled{fd, static_cast<short>(sends ? POLLOUT : POLLIN), 0};
    if (is_aborted) return false;
    if (poll(&polled, 1, 10) <= 0) continue;
    const ssize_t done = sends ? send(fd, at, bytes, MSG_NOSIGNAL | MSG_DONTWAIT)
                               : recv(fd, at, bytes, MSG_DONTWAIT);
    if (done < 0 && (errno == EAGAIN || errno == EINTR)) continue;
    if (done <= 0) return false;
    at += done;
    bytes -= static_cast<std::size_t>(done);
  }
  return true;
}

int Communicator::meet() {
  int own = -1;
  {
    std::lock_guard lock(::mutex);
    const auto found = listening.find(id);
    if (rank == 0 && found == listening.end()) return misuse("rank 0 has not made the id");
    if (rank == 0) own = found->second;
  }
  while (fd < 0) {
    if (is_aborted) return kSystemError;
    if (own >= 0) {
      pollfd polled{own, POLLIN, 0};
      if (poll(&polled, 1, 10) > 0) fd = accept4(own, nullptr, nullptr, SOCK_CLOEXEC);
      continue;
    }
    socklen_t size = 0;
    const sockaddr_un address = address_of(id, &size);
    const int made = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (connect(made, reinterpret_cast<const sockaddr*>(&address), size) == 0) fd = made;
    else close(made), usleep(1000);
  }
  while (hangs("joining") && !is_aborted) usleep(1000);
  if (fails("joining")) return kRemoteError;
  Hello mine{rank, gpu}, other;
  if (!all(reinterpret_cast<char*>(&mine), sizeof mine, true) ||
      !all(reinterpret_cast<char*>(&other), sizeof other, false))
    return kRemoteError;
  if (other.rank == rank) return misuse("both are rank " + std::to_string(rank));
  if (other.gpu == gpu) return misuse("two ranks on GPU " + std::to_string(gpu));
  return kOk;
}

int Communicator::run(const std::vector<Operation>& group) {
  const char* const where = is_connected(ran) ? "moving" : "connecting";
  for (const Operation& each : group) {
    std::uint64_t bytes = each.bytes;
    if (!all(reinterpret_cast<char*>(&bytes), sizeof bytes, each.sends)) return kRemoteError;
    if (bytes != each.bytes)
      return misuse(std::to_string(bytes) + " bytes were sent, " + std::to_string(each.bytes) +
                    " are received");
    const std::size_t half = each.bytes / 2;
    if (!all(each.at, half, each.sends)) return kRemoteError;
    while (hangs(where) && !is_aborted) usleep(1000);
    if (fails(where)) return kRemoteError;
    if (!all(each.at + half, each.bytes - half, each.sends)) return kRemoteError;
  }
  if (!is_connected(ran++) && is_connected(ran)) log("join");
  return kOk;
}

void Communicator::work() {
  state = meet();
  for (;;) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return is_aborted || !groups.empty(); });
    if (groups.empty()) return;
    const auto [group, stream] = std::move(groups.front());
    groups.pop_front();
    lock.unlock();
    if (state == kOk && !is_aborted)
      if (const int failed = run(group); failed != kOk) state = failed;
    // A failed operation stays on the stream, as a kernel that waits does, until it is aborted.
    while (state != kOk && !is_aborted) usleep(1000);
    launch(stream, -1);
  }
}

struct Group {
  int depth = 0;
  Communicator* communicator = nullptr;
  void* stream = nullptr;
  std::vector<Operation> operations;
};
/// The thread's. Not thread_local: LeakSanitizer of g++ 12 dies of a thread that hangs, and has
/// such memory of a library that was opened late.
Group& group_of_thread() {
  static auto& all = *new std::map<std::thread::id, Group>;
  std::lock_guard lock(mutex);
  return all[std::this_thread::get_id()];
}

int add(bool sends, void* at, std::size_t bytes, int type, int peer, void* handle, void* stream) {
  auto* communicator = static_cast<Communicator*>(handle);
  Group& group = group_of_thread();
  {
    std::lock_guard lock(mutex);
    if (!communicators.contains(communicator)) return misuse("a communicator after its abort");
  }
  if (communicator->state == kInProgress && group.operations.empty())
    return misuse("a communicator that is not ready");
  if (group.depth == 0) return misuse("an operation outside of a group");
  if (at == nullptr || bytes == 0 || type != 1 || peer != 1 - communicator->rank)
    return misuse("arguments of a send or receive");
  if (gpu_of_thread() != communicator->gpu) return misuse("a thread with another GPU's context");
  if (group.communicator != nullptr &&
      (group.communicator != communicator || group.stream != stream))
    return misuse("a group of several communicators or streams");
  group.communicator = communicator;
  group.stream = stream;
  group.operations.push_back({sends, static_cast<char*>(at), bytes});
  return kOk;
}

}  // namespace

#pragma GCC visibility push(default)
extern "C" {

int ncclGetVersion(int* version) {
  const char* set = std::getenv("STAND_IN_NCCL_VERSION");
  *version = set != nullptr ? std::atoi(set) : 22707;
  return kOk;
}

const char* ncclGetErrorString(int code) {
  return code == kSystemError   ? "unhandled system error"
         : code == kRemoteError ? "remote process exited or there was a network error"
                                : "another error";
}

int ncclGetUniqueId(UniqueId* id) {
  hang_if("id");
  if (fails("id")) return kSystemError;
  std::random_device random;
  std::string name;
  for (int i = 0; i < 32; ++i) name += "0123456789abcdef"[random() % 16];
  socklen_t size = 0;
  const sockaddr_un address = address_of(name, &size);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address), size) != 0 || listen(fd, 1) != 0)
    return kSystemError;
  std::memset(id->bytes, 0, sizeof id->bytes);
  name.copy(id->bytes, name.size());
  std::lock_guard lock(mutex);
  listening[name] = fd;
  return kOk;
}

int ncclCommInitRankConfig(void** made, int ranks, UniqueId id, int rank, const Config* config) {
  hang_if("init");
  if (fails("init")) return kSystemError;
  if (ranks != 2 || rank < 0 || rank > 1) {
    misuse("this stand-in knows two ranks alone");
    return kInvalidArgument;
  }
  if (config->size < 24 || config->magic != 0xcafebeef || config->version < 21400 ||
      config->blocking != 0) {
    misuse("a configuration");
    return kInvalidArgument;
  }
  const int gpu = gpu_of_thread();
  if (gpu < 0) return kCudaError;
  auto* communicator = new Communicator;
  communicator->rank = rank;
  communicator->gpu = gpu;
  communicator->id.assign(id.bytes, 32);
  communicator->thread = std::thread([communicator] { communicator->work(); });
  std::lock_guard lock(mutex);
  communicators.insert(communicator);
  *made = communicator;
  return kInProgress;
}

int ncclCommGetAsyncError(void* handle, int* state) {
  auto* communicator = static_cast<Communicator*>(handle);
  std::lock_guard lock(mutex);
  if (!communicators.contains(communicator)) return misuse("a communicator after its abort");
  *state = communicator->state;
  return kOk;
}

int ncclCommAbort(void* handle) {
  hang_if("abort");
  auto* communicator = static_cast<Communicator*>(handle);
  {
    std::lock_guard lock(mutex);
    if (communicators.erase(communicator) == 0) return misuse("a communicator after its abort");
  }
  {
    std::lock_guard lock(communicator->mutex);
    communicator->is_aborted = true;
    communicator->changed.notify_all();
  }
  communicator->thread.join();
  if (communicator->fd >= 0) close(communicator->fd);
  {
    std::lock_guard lock(mutex);
    if (const auto own = listening.find(communicator->id); own != listening.end()) {
      close(own->second);
      listening.erase(own);
    }
  }
  delete communicator;
  log("abort");
  return kOk;
}

int ncclGroupStart() {
  ++group_of_thread().depth;
  return kOk;
}

int ncclSend(const void* from, std::size_t count, int type, int peer, void* communicator,
             void* stream) {
  return add(true, const_cast<void*>(from), count, type, peer, communicator, stream);
}

int ncclRecv(void* to, std::size_t count, int type, int peer, void* communicator, void* stream) {
  return add(false, to, count, type, peer, communicator, stream);
}

int ncclGroupEnd() {
  Group& group = group_of_thread();
  if (group.depth == 0) return misuse("the end of a group that has not begun");
  const bool moves =
      group.communicator != nullptr && Communicator::is_connected(group.communicator->launched);
  if (moves) hang_if("group");
  if (--group.depth > 0) return kOk;
  const Group ended = std::move(group);
  group = {};
  if (moves && fails("group")) return kSystemError;
  if (ended.communicator == nullptr) return kOk;
  ++ended.communicator->launched;
  launch(ended.stream, 1);
  std::lock_guard lock(ended.communicator->mutex);
  ended.communicator->groups.emplace_back(ended.operations, ended.stream);
  ended.communicator->changed.notify_all();
  return kInProgress;
}

}  // extern "C"
#pragma GCC visibility pop
