// SPDX-License-Identifier: GPL-2.0-or-later
#include "topo/measure.h"

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <new>

namespace swell::topo {

namespace {

using Clock = std::chrono::steady_clock;

enum class Work : std::uint32_t { stream, ping, end };
struct Request {
  Work work = Work::end;
  std::uint32_t bytes = 0, count = 0;
};
constexpr std::uint32_t kMaxBytes = kMaxMessageBytes, kMaxCount = 1 << 24;

/// The bytes of messages, aligned to a page. TCP copies from the start of a page to its own pages a
/// third to a half faster than from 16 bytes into a page, where the allocator puts a vector of this
/// size; other measuring programs map their buffers.
class Buffer {
 public:
  Buffer() : bytes_(static_cast<char*>(::operator new(kMaxBytes, kPage))) {
    std::memset(bytes_.get(), 1, kMaxBytes);  // allocates the pages before the first message
  }
  char* data() const noexcept { return bytes_.get(); }

 private:
  static constexpr std::align_val_t kPage{4096};
  struct Free {
    void operator()(char* bytes) const noexcept { ::operator delete(bytes, kPage); }
  };
  std::unique_ptr<char, Free> bytes_;
};

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

struct Links {
  Link &control, &data;
};

/// Runs one exchange, and returns its time in seconds.
Result<double> run(const Links& links, const Request& request, const Buffer& buffer) {
  if (auto sent = links.control.send(reinterpret_cast<const char*>(&request), sizeof(request), 1);
      !sent)
    return sent.error();
  char ready = 0;
  if (auto got = links.control.receive(&ready, 1, 1); !got) return got.error();
  const auto begin = Clock::now();
  if (request.work == Work::stream) {
    if (auto sent = links.data.send(buffer.data(), request.bytes, static_cast<int>(request.count));
        !sent)
      return sent.error();
    // The other side answers once the last byte has arrived.
    if (auto got = links.control.receive(&ready, 1, 1); !got) return got.error();
  } else {
    for (std::uint32_t i = 0; i < request.count; ++i) {
      if (auto sent = links.data.send(buffer.data(), request.bytes, 1); !sent) return sent.error();
      if (auto got = links.data.receive(buffer.data(), request.bytes, 1); !got) return got.error();
    }
  }
  return seconds_since(begin);
}

/// Returns the seconds per message. Raises the count until the time is long enough to measure.
Result<double> per_message(const Links& links, Work work, std::uint32_t bytes, double seconds,
                           const Buffer& buffer) {
  std::uint32_t count = 1;
  while (true) {
    auto took = run(links, {work, bytes, count}, buffer);
    if (!took) return took;
    if (*took >= seconds / 2 || count >= kMaxCount / 16) return *took / count;
    const double factor = std::clamp(seconds / std::max(*took, 1e-6), 2.0, 16.0);
    count = static_cast<std::uint32_t>(count * factor);
  }
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

}  // namespace

const std::vector<int>& message_sizes() {
  static const std::vector<int> sizes = {8, 64, 512, 4096, 32768, 262144, 2097152, 16777216};
  return sizes;
}

Result<void> serve(Link& control, Link& data) {
  const Buffer buffer;
  while (true) {
    Request request;
    if (auto got = control.receive(reinterpret_cast<char*>(&request), sizeof(request), 1); !got)
      return got;
    if (request.work == Work::end) return {};
    if (request.bytes == 0 || request.bytes > kMaxBytes || request.count > kMaxCount ||
        request.work > Work::end)
      return Error("the peer sent an unknown measurement request");
    const char ready = 1;
    if (auto sent = control.send(&ready, 1, 1); !sent) return sent;
    if (request.work == Work::stream) {
      if (auto got = data.receive(buffer.data(), request.bytes, static_cast<int>(request.count));
          !got)
        return got;
      if (auto sent = control.send(&ready, 1, 1); !sent) return sent;
      continue;
    }
    for (std::uint32_t i = 0; i < request.count; ++i) {
      if (auto got = data.receive(buffer.data(), request.bytes, 1); !got) return got;
      if (auto sent = data.send(buffer.data(), request.bytes, 1); !sent) return sent;
    }
  }
}

Result<std::vector<cluster::MeasuredSize>> measure(Link& control, Link& data, double seconds,
                                                   const std::vector<int>& sizes) {
  const Links links{control, data};
  const Buffer buffer;
  std::vector<cluster::MeasuredSize> all;
  for (const int size : sizes) {
    const auto bytes = static_cast<std::uint32_t>(size);
    auto stream = per_message(links, Work::stream, bytes, seconds, buffer);
    if (!stream) return stream.error();
    auto round_trip = per_message(links, Work::ping, bytes, seconds, buffer);
    if (!round_trip) return round_trip.error();
    all.push_back({static_cast<double>(size), size / *stream, *round_trip / 2});
  }
  const Request end;
  if (auto sent = control.send(reinterpret_cast<const char*>(&end), sizeof(end), 1); !sent)
    return sent.error();
  return all;
}

double best_rate(const std::vector<cluster::MeasuredSize>& sizes) noexcept {
  double best = 0;
  for (const cluster::MeasuredSize& size : sizes) best = std::max(best, size.bytes_per_s);
  return best;
}

cluster::MeasuredClass summarize(int distance,
                                 const std::vector<std::vector<cluster::MeasuredSize>>& pairs) {
  cluster::MeasuredClass made;
  made.distance = distance;
  made.pairs = static_cast<int>(pairs.size());
  std::vector<double> rates;
  for (const auto& pair : pairs) rates.push_back(best_rate(pair));
  made.bytes_per_s = median(rates);
  if (made.bytes_per_s > 0)
    made.spread = (*std::max_element(rates.begin(), rates.end()) -
                   *std::min_element(rates.begin(), rates.end())) /
                  made.bytes_per_s;
  const std::size_t sizes = pairs.empty() ? 0 : pairs[0].size();
  for (std::size_t i = 0; i < sizes; ++i) {
    std::vector<double> rate, latency;
    for (const auto& pair : pairs) {
      if (i >= pair.size()) continue;
      rate.push_back(pair[i].bytes_per_s);
      latency.push_back(pair[i].latency_s);
    }
    made.sizes.push_back({pairs[0][i].bytes, median(rate), median(latency)});
  }
  if (!made.sizes.empty()) made.latency_s = made.sizes[0].latency_s;
  return made;
}

}  // namespace swell::topo
