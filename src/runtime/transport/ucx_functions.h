// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "runtime/transport/ucx.h"
#include "runtime/transport/ucx_api.h"

namespace swell::runtime {

/// The functions of one UCX library that Swell uses, and the library's release. Filled by
/// Ucx::open(), called by UcxLink too; valid until the program ends.
struct Ucx::Functions {
  unsigned version[3] = {};
  void (*get_version)(unsigned*, unsigned*, unsigned*);
  const char* (*to_text)(ucx::Status);
  ucx::Status (*read_config)(const char*, const char*, void**);
  ucx::Status (*modify_config)(void*, const char*, const char*);
  void (*release_config)(void*);
  ucx::Status (*init)(unsigned, unsigned, const ucx::ContextParams*, const void*, void**);
  void (*cleanup)(void*);
  ucx::Status (*make_worker)(void*, const ucx::WorkerParams*, void**);
  void (*destroy_worker)(void*);
  ucx::Status (*get_address)(void*, void**, std::size_t*);
  void (*release_address)(void*, void*);
  ucx::Status (*make_endpoint)(void*, const ucx::EndpointParams*, void**);
  void (*print_endpoint)(void*, std::FILE*);
  unsigned (*progress)(void*);
  ucx::StatusPointer (*send)(void*, const void*, std::size_t, std::uint64_t,
                             const ucx::RequestParams*);
  ucx::StatusPointer (*receive)(void*, void*, std::size_t, std::uint64_t, std::uint64_t,
                                const ucx::RequestParams*);
  ucx::Status (*check)(void*);
  ucx::Status (*check_received)(void*, ucx::Received*);
  void (*cancel)(void*, void*);
  void (*free)(void*);
};

}  // namespace swell::runtime
