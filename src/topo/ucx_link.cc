// SPDX-License-Identifier: GPL-2.0-or-later
#include <config.h>

#include "topo/link.h"

#ifdef HAVE_UCX

#include <chrono>
#include <cstdint>
#include <deque>
#include <fmt/format.h>
#include <sched.h>
#include <ucp/api/ucp.h>
#include <vector>

namespace swell::topo {

namespace {

constexpr ucp_tag_t kTag = 1;
constexpr unsigned kTurnsAlone = 200;
constexpr std::size_t kWindow = 16;  ///< messages under way at once

Error failure(const char* what, ucs_status_t status) {
  return Error(fmt::format("{}: {}", what, ucs_status_string(status)));
}

class UcxLink final : public Link {
 public:
  ~UcxLink() override {
    if (endpoint_ != nullptr) {
      const ucp_request_param_t flush{};
      (void)wait(ucp_ep_close_nbx(endpoint_, &flush));
    }
    if (worker_ != nullptr) ucp_worker_destroy(worker_);
    if (context_ != nullptr) ucp_cleanup(context_);
  }

  Result<void> open(Link& control) {
    ucp_params_t params{};
    params.field_mask = UCP_PARAM_FIELD_FEATURES;
    params.features = UCP_FEATURE_TAG;
    ucp_config_t* config = nullptr;
    if (const auto status = ucp_config_read(nullptr, nullptr, &config); status != UCS_OK)
      return failure("ucp_config_read", status);
    auto status = ucp_init(&params, config, &context_);
    ucp_config_release(config);
    if (status != UCS_OK) return failure("ucp_init", status);
    ucp_worker_params_t worker{};
    worker.field_mask = UCP_WORKER_PARAM_FIELD_THREAD_MODE;
    worker.thread_mode = UCS_THREAD_MODE_SINGLE;
    status = ucp_worker_create(context_, &worker, &worker_);
    if (status != UCS_OK) return failure("ucp_worker_create", status);
    return exchange(control);
  }

  Result<void> send(const char* data, std::size_t bytes, int count) override {
    return all(count, [&](const ucp_request_param_t& param) {
      return ucp_tag_send_nbx(endpoint_, data, bytes, kTag, &param);
    });
  }
  Result<void> receive(char* data, std::size_t bytes, int count) override {
    // All messages may be received in one buffer, because a measurement reads none of them.
    return all(count, [&](const ucp_request_param_t& param) {
      return ucp_tag_recv_nbx(worker_, data, bytes, kTag, ~ucp_tag_t{0}, &param);
    });
  }

 private:
  Result<void> exchange(Link& control) {
    ucp_address_t* mine = nullptr;
    std::size_t length = 0;
    if (const auto status = ucp_worker_get_address(worker_, &mine, &length); status != UCS_OK)
      return failure("ucp_worker_get_address", status);
    const auto own = static_cast<std::uint32_t>(length);
    auto sent = control.send(reinterpret_cast<const char*>(&own), sizeof(own), 1);
    if (sent) sent = control.send(reinterpret_cast<const char*>(mine), length, 1);
    ucp_worker_release_address(worker_, mine);
    if (!sent) return sent;
    std::uint32_t size = 0;
    if (auto got = control.receive(reinterpret_cast<char*>(&size), sizeof(size), 1); !got)
      return got;
    if (size == 0 || size > 65536)
      return Error(fmt::format("a UCX address of {} bytes; that is not an address", size));
    std::vector<char> theirs(size);
    if (auto got = control.receive(theirs.data(), size, 1); !got) return got;
    ucp_ep_params_t params{};
    params.field_mask = UCP_EP_PARAM_FIELD_REMOTE_ADDRESS;
    params.address = reinterpret_cast<const ucp_address_t*>(theirs.data());
    if (const auto status = ucp_ep_create(worker_, &params, &endpoint_); status != UCS_OK)
      return failure("ucp_ep_create", status);
    return {};
  }

  template <typename Start>
  Result<void> all(int count, Start start) {
    const ucp_request_param_t param{};
    std::deque<ucs_status_ptr_t> under_way;
    Result<void> good;
    for (int i = 0; i < count && good; ++i) {
      if (under_way.size() == kWindow) {
        good = wait(under_way.front());
        under_way.pop_front();
      }
      const ucs_status_ptr_t request = start(param);
      if (request != nullptr) under_way.push_back(request);
    }
    for (const ucs_status_ptr_t request : under_way)
      if (auto done = wait(request); !done && good) good = done;
    return good;
  }

  Result<void> wait(ucs_status_ptr_t request) {
    if (request == nullptr) return {};
    if (UCS_PTR_IS_ERR(request)) return failure("UCX", UCS_PTR_STATUS(request));
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(kPatience_s);
    ucs_status_t status = UCS_INPROGRESS;
    unsigned idle = 0;
    for (unsigned turns = 0; (status = ucp_request_check_status(request)) == UCS_INPROGRESS;
         ++turns) {
      idle = ucp_worker_progress(worker_) != 0 ? 0 : idle + 1;
      // The other side may be waiting for this core.
      if (idle % kTurnsAlone == kTurnsAlone - 1) sched_yield();
      if (turns % 4096 == 4095 && std::chrono::steady_clock::now() > end) {
        ucp_request_cancel(worker_, request);
        status = UCS_ERR_TIMED_OUT;
        break;
      }
    }
    ucp_request_free(request);
    if (status != UCS_OK) return failure("UCX", status);
    return {};
  }

  ucp_context_h context_ = nullptr;
  ucp_worker_h worker_ = nullptr;
  ucp_ep_h endpoint_ = nullptr;
};

}  // namespace

bool has_ucx() noexcept { return true; }

Result<std::unique_ptr<Link>> make_ucx(Link& control) {
  auto link = std::make_unique<UcxLink>();
  if (auto opened = link->open(control); !opened) return opened.error();
  return std::unique_ptr<Link>(std::move(link));
}

}  // namespace swell::topo

#else

namespace swell::topo {

bool has_ucx() noexcept { return false; }
Result<std::unique_ptr<Link>> make_ucx(Link&) {
  return Error("this swell was built without UCX; give --method tcp, or build it with libucx-dev");
}

}  // namespace swell::topo

#endif
