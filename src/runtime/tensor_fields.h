// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include <cstring>

#include "core/result.h"
#include "runtime/registry.h"
#include "runtime/swell.h"

namespace swell::runtime {

/// Value of a C program's enum, which may be any: reading another one as an enum is undefined in
/// C++.
template <typename Enum>
int number_of(const Enum& given) {
  static_assert(sizeof given == sizeof(int));
  int number = 0;
  std::memcpy(&number, &given, sizeof number);
  return number;
}

/// Reads a C program's tensor. The error names the tensor, the field and what is possible.
Result<Entry> entry_of(const swell_tensor_t& tensor);

}  // namespace swell::runtime
