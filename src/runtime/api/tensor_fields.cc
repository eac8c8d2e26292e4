// SPDX-License-Identifier: BSD-3-Clause
#include "runtime/api/tensor_fields.h"

#include <string>

namespace swell::runtime {

Result<Entry> entry_of(const swell_tensor_t& tensor) {
  const auto has = [&](std::uint64_t bit) { return (tensor.field_mask & bit) != 0; };
  Entry entry;
  if (tensor.name == nullptr) return Error("a tensor has no name");
  entry.tensor.name = tensor.name;
  const auto bad = [&](const char* what) {
    return Error("tensor " + entry.tensor.name + ": " + what);
  };
  if (tensor.dims < 1 || tensor.dims > SWELL_MAX_DIMS)
    return bad("dims must be 1 to 8; a scalar is of shape 1");
  const int dtype = number_of(tensor.dtype);
  if (dtype < 0 || dtype >= kDTypes) return bad("its dtype is none of swell_dtype_t");
  entry.tensor.dtype = static_cast<DType>(dtype);
  if (has(SWELL_TENSOR_KIND)) {
    const int kind = number_of(tensor.kind);
    if (kind < 0 || kind >= kKinds) return bad("its kind is none of swell_kind_t");
    entry.tensor.kind = static_cast<Kind>(kind);
  }
  if (has(SWELL_TENSOR_LAYER)) entry.tensor.layer = tensor.layer;
  entry.tensor.optional = has(SWELL_TENSOR_OPTIONAL) && tensor.optional != 0;
  entry.tensor.shape.assign(tensor.shape, tensor.shape + tensor.dims);
  if (auto good = element_count(entry.tensor.shape); !good)
    return good.error().while_doing("tensor " + entry.tensor.name);
  entry.part = Part::whole(entry.tensor.shape);
  if (has(SWELL_TENSOR_BLOCK)) {
    const Part block{Shape(tensor.begin, tensor.begin + tensor.dims),
                     Shape(tensor.end, tensor.end + tensor.dims), 0, 1};
    // Check before the elements are counted: a product of invalid sizes could overflow.
    if (auto good = check(block, entry.tensor.shape); !good)
      return good.error().while_doing("tensor " + entry.tensor.name);
    entry.part = Part::block(block.begin, block.end);
  }
  if (has(SWELL_TENSOR_RANGE)) {
    entry.part.flat_begin = tensor.flat_begin;
    entry.part.flat_end = tensor.flat_end;
  }
  if (has(SWELL_TENSOR_ALIAS)) {
    if (tensor.alias_of == nullptr) return bad("alias_of is NULL although its bit is set");
    entry.alias_of = tensor.alias_of;
  }
  if (has(SWELL_TENSOR_ADDRESS)) {
    if (tensor.address == nullptr) return bad("address is NULL although its bit is set");
    entry.address = reinterpret_cast<std::uintptr_t>(tensor.address);
  }
  if (has(SWELL_TENSOR_DEVICE)) {
    if (tensor.device < 0) return bad("device is below 0; GPUs count from 0");
    entry.device = tensor.device;
  }
  return entry;
}

}  // namespace swell::runtime
