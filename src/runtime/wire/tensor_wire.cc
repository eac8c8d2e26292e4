// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/wire/tensor_wire.h"

#include <cstdint>

namespace swell::runtime {

namespace {

void put(ByteWriter& writer, const Shape& shape) {
  writer.put(static_cast<std::uint32_t>(shape.size()));
  for (std::int64_t extent : shape) writer.put(extent);
}

Shape get_shape(ByteReader& reader) {
  const auto dims = reader.get<std::uint32_t>();
  if (dims > kMaxDims) reader.fail();
  Shape shape;
  for (std::uint32_t d = 0; reader.good() && d < dims; ++d)
    shape.push_back(reader.get<std::int64_t>());
  return shape;
}

}  // namespace

void put(ByteWriter& writer, const TensorInfo& info) {
  writer.text(info.name).put(static_cast<std::int32_t>(info.layer)).put(info.kind).put(info.dtype);
  writer.put<std::uint8_t>(info.optional);
  put(writer, info.shape);
}

void put(ByteWriter& writer, const Part& part) {
  put(writer, part.begin);
  put(writer, part.end);
  writer.put(part.flat_begin).put(part.flat_end);
}

TensorInfo get_tensor(ByteReader& reader) {
  TensorInfo info;
  info.name = reader.text(kMaxName);
  info.layer = reader.get<std::int32_t>();
  const auto kind = reader.get<std::uint8_t>(), dtype = reader.get<std::uint8_t>();
  if (kind >= kKinds || dtype >= kDTypes) reader.fail();
  if (!reader.good()) return info;
  info.kind = static_cast<Kind>(kind);
  info.dtype = static_cast<DType>(dtype);
  info.optional = reader.get<std::uint8_t>() != 0;
  info.shape = get_shape(reader);
  if (reader.good() && !element_count(info.shape)) reader.fail();
  return info;
}

Part get_part(ByteReader& reader) {
  Part part;
  part.begin = get_shape(reader);
  part.end = get_shape(reader);
  part.flat_begin = reader.get<std::int64_t>();
  part.flat_end = reader.get<std::int64_t>();
  return part;
}

}  // namespace swell::runtime
