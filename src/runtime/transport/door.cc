// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/transport/door.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include "runtime/quiet_thread.h"

namespace swell::runtime {

namespace {

using std::chrono::milliseconds;

/// Pause after descriptors or threads have run out.
constexpr milliseconds kRetryPause{50};
/// Number of new peers that are accepted before waiting peers are served again.
constexpr int kNewcomers = 16;

/// Returns whether an error of accept() concerns only the new connection, which is gone then.
bool is_of_the_newcomer(int error) {
  for (const int each : {EINTR, ECONNABORTED, EPROTO, EPERM, ENETDOWN, ENETUNREACH, EHOSTDOWN,
                         EHOSTUNREACH, ENONET, ENOPROTOOPT, EOPNOTSUPP})
    if (error == each) return true;
  return false;
}

double seconds(std::chrono::steady_clock::time_point time) {
  return std::chrono::duration<double>(time.time_since_epoch()).count();
}

/// Returns the CPU time of the calling thread.
double thread_time_s() {
  timespec time{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// Returns the number of peers without proof: at most a quarter of the descriptors that this
/// process may have.
std::size_t places_within_limit(std::size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  return std::clamp<std::size_t>(limit.rlim_cur / 4, 4, wanted);
}

}  // namespace

Door::Door(Options options, Descriptor unix_listening, Descriptor tcp_listening, std::string key)
    : options_(std::move(options)),
      unix_(std::move(unix_listening)),
      tcp_(std::move(tcp_listening)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      key_(std::move(key)),
      places_(places_within_limit(options_.places),
              std::min(places_within_limit(options_.places), options_.places_of_one_address)),
      share_(options_.share, options_.saved_up_s) {}

Result<void> Door::open() {
  if (!wake_) return Error(fmt::format("an eventfd: {}", std::strerror(errno)));
  for (const int fd : {unix_.get(), tcp_.get()})
    if (fd >= 0) fcntl(fd, F_SETFL, fcntl(fd, F_GETFL) | O_NONBLOCK);
  auto thread = quiet_thread([this] { run(); });
  if (!thread) return thread.error();
  thread_ = std::move(*thread);
  return {};
}

void Door::wake() noexcept {
  const std::uint64_t one = 1;
  [[maybe_unused]] const auto written = write(wake_.get(), &one, sizeof one);
}

void Door::close() noexcept {
  stops_ = true;
  wake();
  if (thread_.joinable()) thread_.join();
}

void Door::run() noexcept {
  while (!stops_) {
    try {
      turn();
      if (options_.at_each_turn && !stops_) options_.at_each_turn();
    } catch (const std::exception&) {  // out of memory: peers may have left by the next attempt
      std::this_thread::sleep_for(kRetryPause);
    }
  }
}

int Door::wait_ms() const {
  std::optional<Clock::time_point> next = accept_again_;
  const auto consider = [&next](Clock::time_point time) {
    if (!next || time < *next) next = time;
  };
  if (admit_again_) consider(*admit_again_);
  if (tcp_again_) consider(*tcp_again_);
  for (const auto& [id, guest] : guests_) consider(guest.until);
  if (!next) return -1;
  const auto left = std::chrono::ceil<milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

void Door::turn() {
  const bool accepts = !accept_again_ || *accept_again_ <= Clock::now();
  if (accepts) accept_again_.reset();
  if (tcp_again_ && *tcp_again_ <= Clock::now()) tcp_again_.reset();
  const double begin_s = thread_time_s();
  std::vector<pollfd> polled = {{wake_.get(), POLLIN, 0},
                                {accepts ? unix_.get() : -1, POLLIN, 0},
                                {accepts && tcp_ && !tcp_again_ ? tcp_.get() : -1, POLLIN, 0}};
  std::vector<Places::Id> ids;
  for (const auto& [id, guest] : guests_)
    if (guest.proof) {
      polled.push_back({guest.proof->fd(), POLLIN, 0});
      ids.push_back(id);
    }
  if (poll(polled.data(), polled.size(), wait_ms()) < 0) return;
  if (polled[0].revents != 0) {
    std::uint64_t count = 0;
    [[maybe_unused]] const auto got = ::read(wake_.get(), &count, sizeof count);
  }
  // Serve waiting peers first: a new peer may replace one whose proof has already arrived.
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (polled[i + 3].revents != 0) read(ids[i]);
  if (polled[1].revents != 0) accept_some(unix_.get(), true);
  if (polled[2].revents != 0) accept_some(tcp_.get(), false);
  const auto now = Clock::now();
  if (admit_again_ && *admit_again_ <= now) {
    admit_again_.reset();
    std::vector<Places::Id> known;
    for (const auto& [id, guest] : guests_)
      if (!guest.proof) known.push_back(id);
    for (const Places::Id id : known) admit(id, guests_.at(id));
  }
  std::vector<Places::Id> late;
  for (const auto& [id, guest] : guests_)
    if (guest.until <= now) late.push_back(id);
  for (const Places::Id id : late) drop(id);
  share_.use(thread_time_s() - begin_s, seconds(now));
  if (const double wait_s = share_.wait_s(seconds(now)); wait_s > 0)
    tcp_again_ =
        now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait_s));
}

void Door::accept_some(int listening, bool is_unix) {
  for (int i = 0; i < kNewcomers; ++i) {
    Descriptor fd(accept4(listening, nullptr, nullptr, SOCK_CLOEXEC));
    if (fd) {
      receive(std::move(fd), is_unix);
      continue;
    }
    if (errno == EAGAIN) return;
    if (is_of_the_newcomer(errno)) continue;
    if (const auto oldest = places_.oldest()) {
      drop(*oldest);
      continue;
    }
    accept_again_ = Clock::now() + kRetryPause;
    return;
  }
}

void Door::receive(Descriptor fd, bool is_unix) {
  const Places::Id id = ++last_id_;
  Guest guest;
  guest.is_unix = is_unix;
  guest.until = Clock::now() + options_.proof_time;
  if (is_unix) {
    auto checked = check_unix_peer(std::move(fd));
    if (!checked) return;
    guest.channel = std::move(*checked);
    admit(id, guests_.emplace(id, std::move(guest)).first->second);
    return;
  }
  const std::string address = peer_address(fd.get());
  auto proof = PeerProof::begin(std::move(fd));
  if (!proof) return;
  if (const auto oldest = places_.in_the_way_of(address)) drop(*oldest);
  guest.proof = std::move(*proof);
  guests_.emplace(id, std::move(guest));
  places_.take(id, address);
}

void Door::read(Places::Id id) {
  Guest& guest = guests_.at(id);
  const auto shown = guest.proof->read(key_);
  if (!shown) return drop(id);
  if (!*shown) return;
  places_.leave(id);
  guest.channel = guest.proof->channel();
  guest.proof.reset();
  guest.until = Clock::now() + options_.thread_time;
  admit(id, guest);
}

void Door::admit(Places::Id id, Guest& guest) {
  if (options_.let_in(guest.channel, guest.is_unix)) drop(id);
  else if (!admit_again_) admit_again_ = Clock::now() + kRetryPause;
}

void Door::drop(Places::Id id) {
  places_.leave(id);
  guests_.erase(id);
}

}  // namespace swell::runtime
