// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/http_server.h"

#include <algorithm>
#include <cerrno>
#include <fmt/format.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <vector>

#include "control/thread_time.h"
#include "core/number.h"

namespace swell::tools {

namespace {

using std::chrono::milliseconds;

constexpr std::size_t kMaxRequest = 8192;
/// Pause of accept after a failure for lack of descriptors.
constexpr milliseconds kRetryPause{50};
/// Number of new clients that are accepted before others are served again.
constexpr int kNewcomers = 16;

/// Returns `wanted`, but at most half of the descriptors that this process may have.
std::size_t within_limit(std::size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return wanted;
  return std::clamp<std::size_t>(limit.rlim_cur / 2, 4, wanted);
}

bool may_try_again() { return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR; }

}  // namespace

HttpServer::HttpServer(Descriptor listening, Options options)
    : listening_(std::move(listening)),
      options_(std::move(options)),
      places_(within_limit(options_.clients),
              std::min(within_limit(options_.clients), options_.clients_of_one_address)),
      share_(options_.share, options_.saved_up_s) {}

int HttpServer::wait_ms() const {
  std::optional<Clock::time_point> next = accept_again_;
  for (const auto& [id, client] : clients_)
    if (!next || client.until < *next) next = client.until;
  if (!next) return -1;
  const auto left = std::chrono::ceil<milliseconds>(*next - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

void HttpServer::turn() {
  const bool accepts = !accept_again_ || *accept_again_ <= Clock::now();
  if (accepts) accept_again_.reset();
  control::ThreadLaps laps;
  std::vector<pollfd> polled = {{accepts ? listening_.get() : -1, POLLIN, 0}};
  std::vector<Places::Id> ids;
  for (const auto& [id, client] : clients_) {
    polled.push_back(
        {client.fd.get(), static_cast<short>(client.is_answered ? POLLOUT : POLLIN), 0});
    ids.push_back(id);
  }
  if (::poll(polled.data(), polled.size(), wait_ms()) < 0) return;
  for (std::size_t i = 0; i < ids.size(); ++i)
    if (polled[i + 1].revents != 0) serve(ids[i]);
  if (polled[0].revents != 0) accept_some();
  std::vector<Places::Id> late;
  for (const auto& [id, client] : clients_)
    if (client.until <= Clock::now()) late.push_back(id);
  for (const Places::Id id : late) drop(id);
  const auto now = Clock::now();
  const double now_s = std::chrono::duration<double>(now.time_since_epoch()).count();
  share_.use(laps.lap_s(), now_s);
  if (const double wait_s = share_.wait_s(now_s); wait_s > 0)
    accept_again_ = std::max(
        accept_again_.value_or(now),
        now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(wait_s)));
}

void HttpServer::accept_some() {
  for (int i = 0; i < kNewcomers; ++i) {
    Descriptor fd(::accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) {
      const std::string peer = control::peer_name(fd.get());
      const std::string address = peer.substr(0, peer.rfind(':'));
      if (const auto oldest = places_.in_the_way_of(address)) drop(*oldest);
      const Places::Id id = ++last_id_;
      clients_.emplace(id, Client{std::move(fd), {}, {}, false, Clock::now() + options_.patience});
      places_.take(id, address);
      serve(id);  // usually the request is there already
      continue;
    }
    if (errno == EAGAIN) return;
    if (errno != EMFILE && errno != ENFILE && errno != ENOBUFS && errno != ENOMEM) continue;
    if (const auto oldest = places_.oldest()) {
      drop(*oldest);
      continue;
    }
    accept_again_ = Clock::now() + kRetryPause;
    return;
  }
}

void HttpServer::serve(Places::Id id) {
  Client& client = clients_.at(id);
  while (!client.is_answered) {
    char part[1024];
    const ssize_t got = ::recv(client.fd.get(), part, sizeof part, 0);
    if (got < 0 && may_try_again()) return;
    if (got <= 0) return drop(id);
    client.in.append(part, static_cast<std::size_t>(got));
    if (client.in.size() > kMaxRequest) return drop(id);
    const std::size_t end = client.in.find("\r\n\r\n");
    if (end == std::string::npos) continue;
    const auto begin = Clock::now();
    client.out = options_.answer(client.in.substr(0, end + 4));
    client.is_answered = true;
    for (auto& [other, each] : clients_) each.until += Clock::now() - begin;
  }
  while (!client.out.empty()) {
    const ssize_t sent =
        ::send(client.fd.get(), client.out.data(), client.out.size(), MSG_NOSIGNAL);
    if (sent < 0 && may_try_again()) return;
    if (sent < 0) return drop(id);
    client.out.erase(0, static_cast<std::size_t>(sent));
  }
  // Unread bytes beyond the request would make the kernel reset the connection at close().
  char rest[1024];
  for (int i = 0; i < 16 && ::recv(client.fd.get(), rest, sizeof rest, 0) == sizeof rest; ++i)
    continue;
  drop(id);
}

void HttpServer::drop(Places::Id id) {
  places_.leave(id);
  clients_.erase(id);
}

Result<ListenAddress> read_listen_address(const std::string& text, const std::string& host) {
  const std::size_t colon = text.rfind(':');
  const std::string port_text = colon == std::string::npos ? text : text.substr(colon + 1);
  const auto port = read_number<std::uint16_t>(port_text);
  std::string address = colon == std::string::npos ? host : text.substr(0, colon);
  const bool opens = address.starts_with('['), closes = address.ends_with(']');
  if (opens && closes) address = address.substr(1, address.size() - 2);
  if (!port || opens != closes || address.find_first_of("[]") != std::string::npos ||
      (opens && address.empty()))
    return Error(fmt::format(
        "--listen={}: give ADDRESS:PORT, [ADDRESS]:PORT, :PORT for all addresses, or PORT for {}; "
        "ports are 0 to 65535",
        text, host));
  return ListenAddress{address, *port};
}

Result<Descriptor> listen_at(const ListenAddress& address) {
  if (!address.host.empty()) return control::listen_on(address.host, address.port);
  auto both = control::listen_on("::", address.port);
  if (both) return both;
  auto four = control::listen_on("0.0.0.0", address.port);  // a host without IPv6
  return four ? std::move(four) : std::move(both);
}

}  // namespace swell::tools
