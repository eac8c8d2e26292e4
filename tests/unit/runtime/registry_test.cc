// SPDX-License-Identifier: GPL-2.0-or-later
#include "runtime/state/registry.h"

#include <criterion/criterion.h>

#include "runtime/state/world.h"

using namespace swell::runtime;

namespace {

Entry entry(const char* name, Part part, std::uintptr_t address = 4096, Shape shape = {4, 6},
            const char* alias_of = "") {
  return {{name, 0, Kind::parameter, DType::f32, std::move(shape), false},
          std::move(part),
          alias_of,
          address,
          0};
}
Entry whole(const char* name, std::uintptr_t address = 4096) {
  return entry(name, Part::whole({4, 6}), address);
}

std::string refusal(const Registry& before, Entry added) {
  Registry registry = before;
  const auto good = registry.add(std::move(added));
  cr_assert_not(good.ok());
  return good.error().message();
}

std::string unmergeable(std::vector<RankState> ranks) {
  const auto world = merge(ranks);
  cr_assert_not(world.ok());
  return world.error().message();
}

}  // namespace

Test(registry, takes_blocks_ranges_with_padding_and_several_parts_of_one_tensor) {
  Registry registry;
  cr_assert(registry.add(entry("qkv", Part::block({0, 0}, {1, 6}), 4096)).ok());
  cr_assert(registry.add(entry("qkv", Part::block({2, 0}, {3, 6}), 8192)).ok());
  cr_assert(registry.add(entry("zero", Part::range({0, 0}, {4, 6}, 20, 28), 12288)).ok());
  cr_assert_eq(registry.bytes(), (6 + 6 + 8) * 4);
  cr_assert(registry.remove("qkv"));
  cr_assert_not(registry.remove("qkv"));
  cr_assert_eq(registry.bytes(), 8 * 4);
}

Test(registry, refuses_what_cannot_be_by_name_and_value) {
  const Registry none;
  cr_assert_eq(refusal(none, whole("")), "a tensor's name has 0 bytes; 1 to 512 are possible");
  cr_assert_eq(refusal(none, entry("w", Part::whole({4, 6}), 4096, {4, 0})),
               "tensor w: dimension 1 has 0 elements; it must have 1 or more");
  cr_assert_eq(refusal(none, entry("w", Part::whole({1}), 4096, {1 << 30, 1 << 30})),
               "tensor w: dimension 1 makes more than 2^50 elements in all");
  cr_assert_eq(
      refusal(none, entry("w", Part::block({0, 2}, {4, 7}))),
      "tensor w: dimension 1: the part goes from 2 to 7; it must be within 0 to 6 and not empty");
  cr_assert_eq(
      refusal(none, entry("w", Part::range({0, 0}, {4, 6}, 5, 5))),
      "tensor w: the flat range goes from 5 to 5; it must begin at 0 or later and not be empty");
  cr_assert_eq(
      refusal(none, entry("w", Part::range({0, 0}, {4, 6}, 0, 49))),
      "tensor w: the flat range goes from 0 to 49; with padding it may reach twice its block's 24 elements");
  cr_assert_eq(refusal(none, whole("w", 0)), "tensor w has no address");
  cr_assert_eq(refusal(none, whole("w", UINTPTR_MAX - 4)),
               "tensor w: 96 bytes from its address are more than there are");
}

Test(registry, refuses_parts_and_memory_that_overlap) {
  Registry registry;
  cr_assert(registry.add(entry("w", Part::block({0, 0}, {2, 6}))).ok());
  cr_assert_eq(refusal(registry, entry("w", Part::block({1, 0}, {3, 6}), 8192)),
               "tensor w: this rank holds some of these elements already, in an earlier part");
  Entry other = entry("w", Part::block({2, 0}, {4, 6}), 8192);
  other.tensor.dtype = DType::bf16;
  cr_assert_eq(
      refusal(registry, other),
      "tensor w: its dtype differs from that of a part registered before; all parts of one tensor agree");
  cr_assert_eq(
      refusal(registry, whole("v", 4096 + 40)),
      "tensor v: its memory overlaps that of w; say so with an alias if they are the same values");
  Entry elsewhere = whole("v", 4096 + 40);
  elsewhere.device = 1;
  cr_assert(registry.add(elsewhere).ok(),
            "addresses of two devices have nothing to do with each other");
}

Test(registry, aliases_share_memory_shape_and_dtype) {
  Registry registry;
  cr_assert(registry.add(whole("embedding")).ok());
  const Part all = Part::whole({4, 6});
  cr_assert(registry.add(entry("head", all, 4096, {4, 6}, "embedding")).ok());
  cr_assert_eq(registry.bytes(), 96, "the same memory counts once");
  cr_assert_eq(
      refusal(registry, entry("x", all, 8192, {4, 6}, "embedding")),
      "tensor x: the same elements stand elsewhere for embedding; aliases on one rank share memory");
  cr_assert_eq(refusal(registry, entry("x", all, 4096, {4, 6}, "head")),
               "tensor x: it is an alias of head, which is an alias itself; name embedding");
  cr_assert_eq(refusal(registry, entry("x", all, 8192, {4, 6}, "x")),
               "tensor x: it is an alias of itself");
  cr_assert_eq(refusal(registry, entry("x", Part::whole({24}), 8192, {24}, "embedding")),
               "tensor x: embedding has another shape or dtype; aliases have the same");
}

Test(world, finds_gaps_disagreement_and_doubles_over_all_ranks) {
  const RankState first{{0, 0}, {entry("w", Part::block({0, 0}, {2, 6}))}};
  cr_assert_eq(unmergeable({first}), "tensor w: no rank holds elements [2:4, 0:6]");
  RankState other{{0, 1}, {entry("w", Part::block({2, 0}, {4, 6}))}};
  cr_assert(merge({first, other}).ok());
  other.entries[0].tensor.shape = {5, 6};
  cr_assert_eq(unmergeable({first, other}),
               "rank 1: tensor w: two ranks disagree on its shape, dtype, kind or layer");
  const RankState twice{{0, 0}, {whole("w"), entry("w", Part::block({0, 0}, {1, 6}))}};
  cr_assert_eq(unmergeable({twice}), "tensor w: rank 0 holds elements [0:1, 0:6] twice");
  const RankState lost{{0, 0}, {entry("head", Part::whole({4, 6}), 4096, {4, 6}, "embedding")}};
  cr_assert_eq(unmergeable({lost}), "tensor head is an alias of embedding, which no rank holds");
}

Test(world, a_tied_tensor_is_one_tensor_by_both_names) {
  const RankState first{{0, 0}, {entry("embedding", Part::whole({4, 6}))}};
  const RankState last{{0, 1}, {entry("head", Part::whole({4, 6}), 4096, {4, 6}, "embedding")}};
  const World world = merge({first, last}).value();
  cr_assert_eq(world.tensors().size(), 1);
  cr_assert_eq(world.find("head"), world.find("embedding"));
  cr_assert_eq(world.distribution_of(*world.find("head")).size(), 2, "two ranks hold it");
  cr_assert_null(world.find("tail"));
}

Test(world, entries_are_known_by_number_whatever_their_order) {
  const Part upper = Part::block({0, 0}, {2, 6}), lower = Part::block({2, 0}, {4, 6});
  const std::vector<RankState> ranks = {
      {{0, 0}, {whole("z"), entry("w", upper), entry("embedding", Part::whole({4, 6}))}},
      {{0, 1}, {entry("head", Part::whole({4, 6}), 4096, {4, 6}, "embedding"), entry("w", lower)}},
      {{0, 2}, {entry("w", upper), whole("z"), entry("w", lower), whole("head")}}};
  const World world = merge(ranks).value();
  for (std::size_t rank = 0; rank < ranks.size(); ++rank) {
    const auto& numbers = world.entries_of(rank);
    cr_assert_eq(numbers.size(), ranks[rank].entries.size());
    for (std::size_t i = 0; i < numbers.size(); ++i) {
      const Entry& wanted = ranks[rank].entries[i];
      cr_assert_eq(&world.tensors()[numbers[i].tensor], world.find(wanted.tensor.name));
      cr_assert(world.part(numbers[i].part) == wanted.part);
    }
  }
  cr_assert_eq(world.parts().size(), 3u, "equal parts have one number");
}
