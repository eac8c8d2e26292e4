// SPDX-License-Identifier: BSD-3-Clause
// The C interface: checks arguments, catches all exceptions, and turns errors into errno values and
// the sentence of swell_last_error().
#include "runtime/api/swell.h"

#include <cerrno>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <new>
#include <optional>
#include <string>
#include <unistd.h>

#include "runtime/api/session.h"
#include "runtime/api/tensor_fields.h"

using namespace swell;
using namespace swell::runtime;

struct swell_session {
  std::unique_ptr<Session> session;
  std::string error;
  const pid_t owner = getpid();
};

namespace {

thread_local std::string open_error;

bool has_adopted(const swell_session& session) {
  return session.session->stage() == Session::Stage::adopted;
}

static_assert(SWELL_MAX_DIMS == kMaxDims);
static_assert(static_cast<int>(Kind::data_position) == SWELL_DATA_POSITION &&
              static_cast<int>(DType::f64) == SWELL_F64);
static_assert(static_cast<int>(Session::Action::checkpoint) == SWELL_CHECKPOINT);

int fail(swell_session_t* session, int code, std::string why) noexcept {
  session->error = std::move(why);
  return -code;
}

/// Runs `body`, which returns 0 or more, or a negative errno. An exception becomes a negative
/// errno.
template <typename Body>
int guarded(std::string& error, Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) {
    error.clear();  // needs no memory
    return -ENOMEM;
  } catch (const std::exception& problem) {
    try {
      error = problem.what();
    } catch (...) { error.clear(); }
    return -EIO;
  } catch (...) {
    error.clear();
    return -EIO;
  }
}

Result<profiler::Role> role_of(const swell_role_t& role) {
  const auto has = [&](std::uint64_t bit) { return (role.field_mask & bit) != 0; };
  profiler::Role made;
  made.stage = role.stage;
  made.group = role.group;
  if (role.stage < 0 || role.group < 0)
    return Error("stage is " + std::to_string(role.stage) + ", group " +
                 std::to_string(role.group) + "; both are 0 or more");
  made.layers = role.layers;
  made.local_batch = role.local_batch;
  if (role.layers < 1 || role.local_batch < 1)
    return Error("layers is " + std::to_string(role.layers) + ", local_batch " +
                 std::to_string(role.local_batch) + "; both are 1 or more");
  if (has(SWELL_ROLE_ACTIVATION)) {
    if (role.activation_dims < 1 || role.activation_dims > SWELL_MAX_DIMS)
      return Error("activation_dims is " + std::to_string(role.activation_dims) +
                   "; it must be 1 to 8");
    const int dtype = number_of(role.activation_dtype);
    if (dtype < 0 || dtype >= kDTypes) return Error("activation_dtype is none of swell_dtype_t");
    const auto elements =
        element_count({role.activation_shape, role.activation_shape + role.activation_dims});
    if (!elements) return elements.error().while_doing("activation_shape");
    made.activ_bytes =
        static_cast<double>(*elements) * static_cast<double>(bytes_of(static_cast<DType>(dtype)));
  }
  const auto number = [&](std::uint64_t bit, double given, const char* name,
                          double* where) -> Result<void> {
    if (!has(bit)) return {};
    if (!std::isfinite(given) || given < 0)
      return Error(std::string(name) + " is " + std::to_string(given) + "; it must be 0 or more");
    *where = given;
    return {};
  };
  if (auto good = number(SWELL_ROLE_WHOLE_ACTIVATIONS, role.whole_activations, "whole_activations",
                         &made.whole_activations);
      !good)
    return good.error();
  if (auto good = number(SWELL_ROLE_LAST_ACTIVATION_BYTES, role.last_activation_bytes,
                         "last_activation_bytes", &made.last_activ_p_bytes);
      !good)
    return good.error();
  made.tied_embedding = has(SWELL_ROLE_TIED_EMBEDDING) && role.tied_embedding != 0;
  if (!has(SWELL_ROLE_CHUNKS)) return made;
  if (role.chunks == nullptr || role.chunk_count < 1 || role.chunk_count > SWELL_MAX_CHUNKS)
    return Error("chunk_count is " + std::to_string(role.chunk_count) + "; 1 to " +
                 std::to_string(SWELL_MAX_CHUNKS) + " chunks can be said");
  made.chunks.assign(role.chunks, role.chunks + role.chunk_count);
  for (const int units : made.chunks)
    if (units < 0) return Error("a chunk has " + std::to_string(units) + " units; 0 is the least");
  return made;
}

/// Reads a region's fields; returns nothing if a value is invalid.
std::optional<profiler::Opening> opening_of(const swell_region_t& region) {
  const auto has = [&](std::uint64_t bit) { return (region.field_mask & bit) != 0; };
  const int kind = number_of(region.kind);
  if (kind < 0 || kind >= profiler::kKinds) return std::nullopt;
  profiler::Opening opening;
  opening.kind = static_cast<profiler::Kind>(kind);
  if (has(SWELL_REGION_STAGE)) opening.stage = region.stage;
  if (has(SWELL_REGION_MICRO_BATCH)) opening.micro_batch = region.micro_batch;
  if (has(SWELL_REGION_LAYERS)) {
    opening.first_layer = region.first_layer;
    opening.layers = region.layers;
    if (region.first_layer < 0 || region.layers < 0) return std::nullopt;
  }
  if (has(SWELL_REGION_MEMORY)) opening.allocated_bytes = region.allocated_bytes;
  if (has(SWELL_REGION_STREAM)) opening.stream = region.stream;
  if ((has(SWELL_REGION_STAGE) && region.stage < 0) ||
      (has(SWELL_REGION_MICRO_BATCH) && region.micro_batch < 0) ||
      (has(SWELL_REGION_STREAM) && region.stream == nullptr))
    return std::nullopt;
  return opening;
}

/// Like guarded(), for functions that several threads may call: sets no message.
template <typename Body>
int guarded_quietly(Body&& body) noexcept {
  try {
    return body();
  } catch (const std::bad_alloc&) { return -ENOMEM; } catch (...) {
    return -EIO;
  }
}

}  // namespace

#define SWELL_EXPORT __attribute__((visibility("default")))

extern "C" {

SWELL_EXPORT int swell_api_version(void) { return SWELL_API_VERSION; }

SWELL_EXPORT int swell_open(const swell_open_params_t* params, swell_session_t** session) {
  return guarded(open_error, [&] {
    open_error.clear();
    if (session == nullptr) {
      open_error = "session is NULL; it is where the new session goes";
      return -EINVAL;
    }
    *session = nullptr;
    std::string socket;
    if (const char* set = std::getenv("SWELL_RUNTIME"); set != nullptr) socket = set;
    if (params != nullptr && (params->field_mask & SWELL_OPEN_SOCKET) != 0) {
      if (params->socket == nullptr) {
        open_error = "socket is NULL although its bit is set";
        return -EINVAL;
      }
      socket = params->socket;
    }
    std::uint64_t snapshot_every = 0;
    if (const char* set = std::getenv("SWELL_SNAPSHOT_EVERY"); set != nullptr && *set != '\0') {
      const char* end = set + std::strlen(set);
      if (const auto read = std::from_chars(set, end, snapshot_every);
          read.ec != std::errc() || read.ptr != end) {
        open_error = std::string("SWELL_SNAPSHOT_EVERY is \"") + set +
                     "\"; it is a number of steps, 0 for no snapshots";
        return -EINVAL;
      }
    }
    if (params != nullptr && (params->field_mask & SWELL_OPEN_SNAPSHOT_EVERY) != 0)
      snapshot_every = params->snapshot_every;
    Stays stays = Stays::no;
    if (params != nullptr && (params->field_mask & SWELL_OPEN_STAYS_IF_NONE_IS_NEW) != 0 &&
        params->stays_if_none_is_new != 0)
      stays = Stays::if_none_is_new;
    if (params != nullptr && (params->field_mask & SWELL_OPEN_STAYS) != 0 && params->stays != 0)
      stays = Stays::always;
    auto opened = Session::open(socket, snapshot_every, stays);
    if (!opened) {
      open_error = opened.error().message();
      return -ECONNREFUSED;
    }
    *session = new swell_session{std::move(*opened), {}};
    return 0;
  });
}

SWELL_EXPORT int swell_register(swell_session_t* session, const swell_tensor_t* tensor) {
  if (session == nullptr || tensor == nullptr) return -EINVAL;
  return guarded(session->error, [&] {
    if (session->session->stage() >= Session::Stage::offered)
      return fail(session, EBUSY, "tensors are registered before swell_offer() and swell_adopt()");
    auto entry = entry_of(*tensor);
    if (!entry) return fail(session, EINVAL, entry.error().message());
    if (entry->device >= 0)
      if (auto opened = session->session->use_device(entry->device, entry->address == 0); !opened)
        return fail(session, ENODEV,
                    "tensor " + entry->tensor.name + ": " + opened.error().message());
    if (auto good = session->session->add(std::move(*entry)); !good)
      return fail(session, EINVAL, good.error().message());
    return 0;
  });
}

SWELL_EXPORT int swell_adopt(swell_session_t* session, swell_generation_t* generation) {
  if (session == nullptr) return -EINVAL;
  return guarded(session->error, [&] {
    if (has_adopted(*session))
      return fail(session, EBUSY, "this session has adopted its state already");
    const auto adopted = session->session->adopt();
    if (!adopted) {
      const bool is_cancelled = adopted.error().code() == ErrorCode::cancelled;
      return fail(session,
                  session->session->is_lost() ? ECONNRESET
                  : is_cancelled              ? ECANCELED
                                              : EINVAL,
                  adopted.error().message());
    }
    if (generation != nullptr)
      *generation = {adopted->generation, adopted->step, adopted->fresh ? 1 : 0};
    return 0;
  });
}

SWELL_EXPORT int swell_next(const swell_session_t* session, swell_session_t** next) {
  if (session == nullptr || next == nullptr) return -EINVAL;
  *next = nullptr;
  return guarded(open_error, [&] {
    auto made = session->session->next();
    if (!made) {
      open_error = made.error().message();
      return -ECANCELED;
    }
    *next = new swell_session{std::move(*made), {}};
    return 0;
  });
}

static int decline(swell_session_t* session, const char* why,
                   std::optional<swell::Shortage> shortage) {
  if (session == nullptr) return -EINVAL;
  return guarded(session->error, [&] {
    if (why == nullptr || *why == 0) return fail(session, EINVAL, "swell_decline() needs a reason");
    const auto declined =
        session->session->decline(swell::Error(std::string(why, strnlen(why, 400)), shortage));
    if (declined) return 0;
    return fail(session, session->session->is_lost() ? ECONNRESET : EINVAL,
                declined.error().message());
  });
}

SWELL_EXPORT int swell_decline(swell_session_t* session, const char* why) {
  return decline(session, why, {});
}

SWELL_EXPORT int swell_lacks_room(swell_session_t* session, const char* why, uint64_t needed_bytes,
                                  uint64_t free_bytes) {
  return decline(session, why, swell::Shortage{needed_bytes, free_bytes});
}

SWELL_EXPORT int swell_offer(swell_session_t* next) {
  if (next == nullptr) return -EINVAL;
  return guarded(next->error, [&] {
    Session& session = *next->session;
    if (session.stage() != Session::Stage::prepares)
      return fail(next, EBUSY, "a session of swell_next() is offered once, before swell_adopt()");
    const auto offered = session.offer();
    if (offered) return 0;
    return fail(next, session.is_lost() ? ECONNRESET : EINVAL, offered.error().message());
  });
}

SWELL_EXPORT const char* swell_variable(const swell_session_t* session, const char* name) {
  if (session == nullptr || name == nullptr) return nullptr;
  try {
    return session->session->variable(name);
  } catch (...) { return nullptr; }
}

SWELL_EXPORT int swell_address(swell_session_t* session, const char* name, int index,
                               void** address, size_t* bytes) {
  if (session == nullptr || name == nullptr || address == nullptr || index < 0) return -EINVAL;
  return guarded(session->error, [&] {
    if (!has_adopted(*session))
      return fail(session, EAGAIN, "tensors have addresses after swell_adopt()");
    *address = session->session->address(name, index, bytes);
    if (*address == nullptr)
      return fail(session, ENOENT,
                  "no part " + std::to_string(index) + " of a tensor " + name + " is registered");
    return 0;
  });
}

SWELL_EXPORT int swell_step(swell_session_t* session, uint64_t step) {
  if (session == nullptr) return -EINVAL;
  return guarded(session->error, [&] {
    if (!has_adopted(*session)) return fail(session, EAGAIN, "steps begin after swell_adopt()");
    if (session->session->is_lost())
      return fail(session, ECONNRESET, "the shim is gone; no switch is possible any more");
    if (step <= session->session->last_step())
      return fail(session, EINVAL,
                  "step " + std::to_string(step) + " follows step " +
                      std::to_string(session->session->last_step()) + "; steps rise");
    const auto action = session->session->step(step);
    if (action) return static_cast<int>(*action);
    return fail(session, ECONNRESET, action.error().message());
  });
}

SWELL_EXPORT int swell_set_role(swell_session_t* session, const swell_role_t* role) {
  if (session == nullptr || role == nullptr) return -EINVAL;
  return guarded(session->error, [&] {
    const auto read = role_of(*role);
    if (!read) return fail(session, EINVAL, read.error().message());
    session->session->profile().set_role(*read);
    return 0;
  });
}

SWELL_EXPORT int swell_make_room(swell_session_t* session) {
  if (session == nullptr) return -EINVAL;
  return guarded_quietly([&] {
    if (!has_adopted(*session)) return -EAGAIN;
    return session->session->take_beside() ? 1 : 0;
  });
}

SWELL_EXPORT int swell_region_begin(swell_session_t* session, const swell_region_t* region) {
  if (session == nullptr || region == nullptr) return -EINVAL;
  return guarded_quietly([&] {
    if (!has_adopted(*session)) return -EAGAIN;
    const auto opening = opening_of(*region);
    if (!opening) return -EINVAL;
    const int number = session->session->profile().recorder().begin(*opening);
    return number == profiler::Recorder::kFull       ? -ENOSPC
           : number == profiler::Recorder::kNoDevice ? -ENODEV
                                                     : number;
  });
}

SWELL_EXPORT int swell_region_end(swell_session_t* session, int region, uint64_t allocated_bytes) {
  if (session == nullptr) return -EINVAL;
  return guarded_quietly([&] {
    if (!has_adopted(*session)) return -EAGAIN;
    return session->session->profile().recorder().end(region, allocated_bytes) ? 0 : -EINVAL;
  });
}

SWELL_EXPORT int swell_memory(swell_session_t* session, uint64_t peak_bytes) {
  if (session == nullptr) return -EINVAL;
  return guarded_quietly([&] {
    if (!has_adopted(*session)) return -EAGAIN;
    session->session->profile().recorder().observe_memory(peak_bytes);
    return 0;
  });
}

SWELL_EXPORT int swell_profile(swell_session_t* session, swell_times_t* times) {
  if (session == nullptr || times == nullptr) return -EINVAL;
  return guarded(session->error, [&] {
    const auto profile = session->session->profile().latest();
    if (!profile)
      return fail(session, EAGAIN, "times are known after swell_set_role() and five whole steps");
    const profiler::Times& seen = profile->times;
    times->stable = session->session->profile().is_stable() ? 1 : 0;
    times->micro_batches = profile->micro_batches;
    times->step_s = seen.step_s;
    times->forward_s = seen.fwd_s;
    times->backward_s = seen.bwd_s;
    times->forward_tp_s = seen.fwd_commu_s;
    times->forward_head_s = seen.head_fwd_s;
    times->backward_head_s = seen.head_bwd_s;
    times->optimizer_s = seen.optim_s;
    times->dp_sync_s = seen.commu_extra_s;
    times->layer_launch_s = seen.layer_launch_s;
    times->kept_bytes = seen.kept_bytes;
    return 0;
  });
}

SWELL_EXPORT void swell_close(swell_session_t* session) {
  // A forked process has neither the threads nor a usable driver, and shares the connection.
  if (session != nullptr && session->owner == getpid()) delete session;
}

SWELL_EXPORT const char* swell_last_error(const swell_session_t* session) {
  return session == nullptr ? open_error.c_str() : session->error.c_str();
}

}  // extern "C"
