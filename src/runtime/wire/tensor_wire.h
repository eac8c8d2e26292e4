// SPDX-License-Identifier: BSD-3-Clause
#pragma once

#include "base/byte_message.h"
#include "runtime/state/tensor.h"

/// Reads and writes tensors and parts in messages.
namespace swell::runtime {

void put(ByteWriter& writer, const TensorInfo& info);
void put(ByteWriter& writer, const Part& part);
/// Reads a tensor. Fails the reader if a number is outside of its enumeration, or the shape is
/// invalid; sizes of a tensor that passes cannot overflow.
TensorInfo get_tensor(ByteReader& reader);
/// Reads a part. The caller must still check that it fits its tensor's shape.
Part get_part(ByteReader& reader);
/// Minimum sizes of a tensor and a part in a message.
inline constexpr std::size_t kTensorBytes = 15, kPartBytes = 24;

}  // namespace swell::runtime
