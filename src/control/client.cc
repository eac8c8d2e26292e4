// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/client.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>

#include "control/frame.h"
#include "control/munge_thread.h"
#include "control/socket.h"

namespace swell::control {

namespace {

using Clock = std::chrono::steady_clock;

constexpr auto kMungeTime = std::chrono::seconds(5);
/// An open connection survives an absence of munged for this long.
constexpr auto kMungeOutage = std::chrono::seconds(60);
constexpr auto kSendTime = std::chrono::seconds(5);

class LiveClient final : public Client {
 public:
  LiveClient(Options options, Descriptor fd, std::unique_ptr<MungeThread> munge)
      : options_(std::move(options)),
        fd_(std::move(fd)),
        munge_(std::move(munge)),
        reader_(options_.max_frame_bytes) {}

  Result<void> greet(Clock::time_point deadline) {
    const Result<std::optional<std::string>> frame = next_frame(deadline);
    if (!frame) return frame.error();
    if (!*frame) return Error("it says nothing; a Swell server speaks first");
    const Result<std::string> nonce = nonce_from(**frame);
    if (!nonce) return nonce.error();
    seal_.emplace(Side::client, *nonce);
    return {};
  }

  int fd() const override { return fd_.get(); }
  std::string local_address() const override { return local_host(fd_.get()); }

  Result<void> send(const Message& message) override {
    if (broken_) return *broken_;
    std::string payload = seal_->wrap(message);
    if (payload.size() > options_.max_frame_bytes)
      return Error(fmt::format("a message of {} bytes; {} are allowed", payload.size(),
                               options_.max_frame_bytes));
    munge_->seal(++ticket_, std::move(payload), std::nullopt);
    const Result<MungeThread::Done> done = munge_->wait(ticket_, munge_time_);
    if (!done) return fail(done.error());
    if (done->error) return fail(*done->error);
    if (done->data.size() > options_.max_frame_bytes)
      return Error(fmt::format("a frame of {} bytes; {} are allowed", done->data.size(),
                               options_.max_frame_bytes));
    return write(framed(done->data));
  }

  bool is_crowded_out() override {
    std::array<char, 1024> bytes;
    ssize_t count = 0;
    while ((count = recv(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT)) > 0)
      reader_.append({bytes.data(), static_cast<std::size_t>(count)});
    while (!is_crowded_out_) {
      const auto frame = reader_.next();
      if (!frame || !*frame) break;
      is_crowded_out_ = **frame == kCrowdedOut;
    }
    return is_crowded_out_;
  }

  Result<std::optional<Message>> receive(std::chrono::milliseconds timeout) override {
    const auto deadline = Clock::now() + timeout;
    for (;;) {
      const Result<std::optional<Json>> json = next_json(deadline);
      if (!json) return json.error();
      if (!*json) return std::optional<Message>();
      Result<Message> message = message_from(**json);
      if (message) return std::optional<Message>(std::move(*message));
      if (!options_.dropped) return fail(message.error());
      options_.dropped(message.error());
    }
  }

 private:
  /// Returns the next message from a good frame, as JSON; nothing when the time is over.
  Result<std::optional<Json>> next_json(Clock::time_point deadline) {
    if (broken_) return *broken_;
    const Result<std::optional<std::string>> frame = next_frame(deadline);
    if (!frame) return fail(frame.error());
    if (!*frame) return std::optional<Json>();
    if (**frame == kCrowdedOut) {
      is_crowded_out_ = true;
      return fail(Error("the server has made room for others"));
    }
    munge_->open(++ticket_, **frame);
    const Result<MungeThread::Done> done = munge_->wait(ticket_, munge_time_);
    if (!done) return fail(done.error());
    if (done->error) return fail(*done->error);
    if (!options_.trust || !options_.trust(done->uid))
      return fail(
          Error(fmt::format("the server speaks as uid {}, which is not trusted", done->uid)));
    Result<Json> json = seal_->open(done->data);
    if (!json) return fail(json.error());
    munge_->set_patience(kMungeOutage);
    munge_time_ = kMungeOutage + kMungeTime;
    return std::optional<Json>(std::move(*json));
  }

  Error fail(const Error& error) {
    broken_ = error;
    return error;
  }

  Result<void> write(std::string_view bytes) {
    const auto deadline = Clock::now() + kSendTime;
    while (!bytes.empty()) {
      const ssize_t count = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (count > 0) bytes.remove_prefix(static_cast<std::size_t>(count));
      else if (errno != EAGAIN && errno != EINTR)
        return fail(Error(std::string("sending: ") + std::strerror(errno)));
      else if (!wait_for(POLLOUT, deadline))
        return fail(Error("sending: the server does not read"));
    }
    return {};
  }

  /// Returns the next frame; nothing when the time is over.
  Result<std::optional<std::string>> next_frame(Clock::time_point deadline) {
    for (;;) {
      Result<std::optional<std::string>> frame = reader_.next();
      if (!frame || *frame) return frame;
      std::array<char, 16 * 1024> bytes;
      const ssize_t count = recv(fd_.get(), bytes.data(), bytes.size(), 0);
      if (count > 0) reader_.append({bytes.data(), static_cast<std::size_t>(count)});
      else if (count == 0) return Error("the server closed the connection");
      else if (errno != EAGAIN && errno != EINTR)
        return Error(std::string("receiving: ") + std::strerror(errno));
      else if (!wait_for(POLLIN, deadline)) return std::optional<std::string>();
    }
  }

  bool wait_for(short events, Clock::time_point deadline) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now());
    if (left.count() <= 0) return false;
    pollfd ready{fd_.get(), events, 0};
    poll(&ready, 1, static_cast<int>(left.count()));
    return true;
  }

  const Options options_;
  Descriptor fd_;
  std::unique_ptr<MungeThread> munge_;
  FrameReader reader_;
  std::optional<Seal> seal_;
  std::optional<Error> broken_;
  bool is_crowded_out_ = false;
  std::uint64_t ticket_ = 0;
  std::chrono::seconds munge_time_ = kMungeTime;
};

}  // namespace

Result<std::unique_ptr<Client>> Client::connect(Options options,
                                                std::chrono::milliseconds timeout) {
  const auto deadline = Clock::now() + timeout;
  const std::string where = fmt::format("{}:{}", options.host, options.port);
  Result<Descriptor> fd = connect_to(options.host, options.port, timeout);
  if (!fd) return fd.error();
  auto munge = MungeThread::start(options.munge_socket);
  if (!munge) return munge.error();
  auto client = std::make_unique<LiveClient>(std::move(options), std::move(*fd), std::move(*munge));
  const Result<void> greeted = client->greet(deadline);
  if (!greeted) return greeted.error().while_doing(where);
  return std::unique_ptr<Client>(std::move(client));
}

}  // namespace swell::control
