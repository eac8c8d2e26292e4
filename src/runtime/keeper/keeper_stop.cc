// SPDX-License-Identifier: BSD-3-Clause
// Part of the keeper: makes the program stop or checkpoint, at its own next boundary or at one on
// which all ranks agree.
#include <fmt/format.h>

#include "base/mutex.h"
#include "runtime/keeper/keeper.h"

namespace swell::runtime {

namespace {

bool is_request(std::uint64_t request) {
  return request == kStopRequest || request == kCheckpointRequest;
}
constexpr const char* kNotARequest =
    "a program can be asked to stop (2) or to write a checkpoint (3)";

}  // namespace

Result<std::string> Keeper::request(std::string_view body) {
  ByteReader reader(body);
  const auto request = reader.get<std::uint64_t>();
  if (!reader.done() || !is_request(request)) return Error(kNotARequest);
  Lock lock(mutex_);
  if (program_ == nullptr) return Error("no program trains here");
  if (agreed_ && agreed_->request == kStopRequest)
    return std::string();  // the program exits with the others
  store_.page().request = request;
  program_->leaves = program_->leaves || request == kStopRequest;
  // The ranks could not agree.
  if (agreed_ && agreed_->request == 0) settle_programs(false);
  return std::string();
}

/// Answers at once: a program that has not passed the step can no longer pass it, because it reads
/// stop_at after it has written its step.
Result<std::string> Keeper::agree(Peer& peer, std::string_view body) {
  ByteReader reader(body);
  const auto step = reader.get<std::uint64_t>();
  if (!reader.done() || step == 0) return Error("a program stands at a step, 1 or more");
  const auto answer = [](AgreeAnswer is, std::uint64_t at) {
    return ByteWriter().put(is).put(at).take();
  };
  Lock lock(mutex_);
  if (staged_ != nullptr)
    return Error(fmt::format("generation {} is being prepared; abort it first",
                             staged_->prepare.generation));
  if (agreed_ && agreed_->request == kStopRequest)
    return answer(AgreeAnswer::leaves, agreed_->step);
  if (agreed_ && (agreed_->request != 0 || agreed_->coordinator != &peer))
    return Error(fmt::format("the program is about to stand at step {} already", agreed_->step));
  if (program_ == nullptr) return answer(AgreeAnswer::no_program, state_.step());
  agreed_ = Agreed{step, 0, &peer};
  store_.page().stop_at = step;
  const bool stands = program_->is_quiesced;
  const std::uint64_t passed = stands ? program_->step : store_.page().step.load();
  if (passed < step || (stands && passed == step)) {
    // It stands at an earlier boundary, which others have passed.
    if (passed < step) answer_quiesced(false);
    return answer(AgreeAnswer::stands, passed);
  }
  settle_programs(false);
  return answer(AgreeAnswer::late, passed);
}

Result<std::string> Keeper::conclude(std::string_view body) {
  ByteReader reader(body);
  const auto step = reader.get<std::uint64_t>(), request = reader.get<std::uint64_t>();
  if (!reader.done() || !is_request(request)) return Error(kNotARequest);
  Lock lock(mutex_);
  if (!agreed_ || agreed_->step != step)
    return Error(fmt::format("step {} is not agreed on here", step));
  agreed_->request = request;
  agreed_->coordinator = nullptr;
  if (program_->is_quiesced) carry_out_request();
  return std::string();
}

/// Lets the program, which stands at the agreed step, go on and follow the request at once. A
/// request to stop has priority over one for a checkpoint.
void Keeper::carry_out_request() {
  if (store_.page().request != kStopRequest) store_.page().request = agreed_->request;
  program_->leaves = program_->leaves || agreed_->request == kStopRequest;
  settle_programs(false);
}

}  // namespace swell::runtime
