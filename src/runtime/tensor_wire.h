// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "runtime/tensor.h"
#include "runtime/wire.h"

/// Tensors and parts as messages have them.
namespace swell::runtime {

void put(Writer& writer, const TensorInfo& info);
void put(Writer& writer, const Part& part);
/// Fails the reader where a number is outside of its enumeration, or the shape is none: what has
/// passed here has products that cannot overflow.
TensorInfo get_tensor(Reader& reader);
/// Whether it is a part of its tensor's shape is still to be checked.
Part get_part(Reader& reader);
/// The least that one takes.
inline constexpr std::size_t kTensorBytes = 15, kPartBytes = 24;

}  // namespace swell::runtime
