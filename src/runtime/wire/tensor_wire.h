// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "runtime/state/tensor.h"
#include "runtime/wire/wire.h"

/// Reads and writes tensors and parts in messages.
namespace swell::runtime {

void put(Writer& writer, const TensorInfo& info);
void put(Writer& writer, const Part& part);
/// Reads a tensor. Fails the reader if a number is outside of its enumeration, or the shape is
/// invalid; sizes of a tensor that passes cannot overflow.
TensorInfo get_tensor(Reader& reader);
/// Reads a part. The caller must still check that it fits its tensor's shape.
Part get_part(Reader& reader);
/// Minimum sizes of a tensor and a part in a message.
inline constexpr std::size_t kTensorBytes = 15, kPartBytes = 24;

}  // namespace swell::runtime
