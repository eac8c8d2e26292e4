// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/state/region.h"

#include <criterion/criterion.h>
#include <random>

using namespace swell::runtime;

namespace {

std::int64_t next(std::mt19937& random, std::int64_t low, std::int64_t high) {
  return low + static_cast<std::int64_t>(random() % static_cast<unsigned>(high - low + 1));
}

/// A random block of `shape`, and of it a random range that may pass its end.
Part random_part(std::mt19937& random, const Shape& shape) {
  Shape begin, end;
  for (std::int64_t extent : shape) {
    begin.push_back(next(random, 0, extent - 1));
    end.push_back(next(random, begin.back() + 1, extent));
  }
  const std::int64_t all = Part::block(begin, end).elements();
  if (random() % 2) return Part::block(begin, end);
  const std::int64_t from = next(random, 0, all - 1);
  return Part::range(begin, end, from, next(random, from + 1, all + 3));
}

Shape random_shape(std::mt19937& random) {
  Shape shape;
  for (auto dims = next(random, 1, 4); dims > 0; --dims) shape.push_back(next(random, 1, 5));
  return shape;
}

/// The element of the tensor that each place of the part's memory holds; -1: padding.
std::vector<std::int64_t> memory_of(const Part& part, const Shape& shape) {
  std::vector<std::int64_t> memory;
  for (std::int64_t flat = part.flat_begin; flat < part.flat_end; ++flat) {
    std::int64_t rest = flat, element = 0, scale = 1;
    if (flat >= part.block_elements()) {
      memory.push_back(-1);
      continue;
    }
    for (std::size_t d = shape.size(); d-- > 0;) {
      const std::int64_t extent = part.end[d] - part.begin[d];
      element += (part.begin[d] + rest % extent) * scale;
      rest /= extent;
      scale *= shape[d];
    }
    memory.push_back(element);
  }
  return memory;
}

}  // namespace

Test(region, a_parts_boxes_are_its_elements_each_once) {
  std::mt19937 random(1);
  for (int i = 0; i < 5000; ++i) {
    const Shape shape = random_shape(random);
    const Part part = random_part(random, shape);
    const auto memory = memory_of(part, shape);
    std::vector<int> seen(memory.size(), 0);
    const auto boxes = boxes_of(part);
    cr_assert_leq(boxes.size(), 2 * shape.size() - 1);
    for (const Box& box : boxes)
      each_run(box, part, part, [&](std::int64_t a, std::int64_t b, std::int64_t count) {
        cr_assert_eq(a, b);
        for (std::int64_t k = 0; k < count; ++k) ++seen.at(static_cast<std::size_t>(a + k));
      });
    for (std::size_t k = 0; k < seen.size(); ++k)
      cr_assert_eq(seen[k], memory[k] >= 0, "pair %d, place %zu", i, k);
  }
}

Test(region, runs_join_equal_elements_of_two_parts) {
  std::mt19937 random(2);
  for (int i = 0; i < 5000; ++i) {
    const Shape shape = random_shape(random);
    const Part a = random_part(random, shape), b = random_part(random, shape);
    const auto in_a = memory_of(a, shape), in_b = memory_of(b, shape);
    std::size_t shared = 0, found = 0;
    for (std::int64_t element : in_a)
      shared += element >= 0 && std::find(in_b.begin(), in_b.end(), element) != in_b.end();
    for (const Box& one : boxes_of(a))
      for (const Box& other : boxes_of(b))
        if (const auto both = common(one, other))
          each_run(*both, a, b, [&](std::int64_t at_a, std::int64_t at_b, std::int64_t count) {
            for (std::int64_t k = 0; k < count; ++k, ++found)
              cr_assert_eq(in_a.at(static_cast<std::size_t>(at_a + k)),
                           in_b.at(static_cast<std::size_t>(at_b + k)));
          });
    cr_assert_eq(found, shared);
  }
}

Test(region, a_difference_and_what_is_shared_make_the_whole) {
  std::mt19937 random(3);
  for (int i = 0; i < 2000; ++i) {
    const Shape shape = random_shape(random);
    const Box a = boxes_of(random_part(random, shape)).front(),
              b = boxes_of(random_part(random, shape)).front();
    std::vector<Box> rest;
    subtract(a, b, rest);
    const auto both = common(a, b);
    std::int64_t sum = both ? both->elements() : 0;
    for (std::size_t k = 0; k < rest.size(); ++k) {
      sum += rest[k].elements();
      cr_assert_not(common(rest[k], b).has_value());
      for (std::size_t m = k + 1; m < rest.size(); ++m)
        cr_assert_not(common(rest[k], rest[m]).has_value());
    }
    cr_assert_eq(sum, a.elements());
  }
}
