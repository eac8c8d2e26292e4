// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/cluster/collectives.h"

#include <cmath>
#include <criterion/criterion.h>

using namespace swell;
using namespace swell::cluster;

namespace {

bool near(double a, double b) { return std::abs(a / b - 1) < 1e-9; }

CollectiveSeries series(Collective what, CollectiveShape shape,
                        std::vector<CollectiveSeries::Size> sizes) {
  return {"a100", what, shape, std::move(sizes)};
}

CollectiveTable table(std::vector<CollectiveSeries> all) {
  auto made = CollectiveTable::make(std::move(all));
  cr_assert(made.ok(), "%s", made.ok() ? "" : made.error().message().c_str());
  return *made;
}

const CollectiveShape kFour{4, 1, 1, 1};

}  // namespace

Test(collectives, times_are_linear_between_measured_sizes) {
  const auto made = table({series(Collective::all_reduce, kFour, {{1000, 10e-6}, {3000, 30e-6}})});
  const auto at = [&](double bytes) {
    return *made.seconds("a100", Collective::all_reduce, kFour, bytes);
  };
  cr_assert(near(at(2000), 20e-6));
  cr_assert(near(at(3000), 30e-6));
  cr_assert(near(at(10), 10e-6), "no faster than the smallest");
  cr_assert(near(at(6000), 60e-6), "at the bandwidth of the largest");
  cr_assert_eq(*made.seconds("a100", Collective::all_reduce, {1, 1, 8, 8}, 2000), 0);
  cr_assert_not(made.seconds("h100", Collective::all_reduce, kFour, 2000));
  cr_assert_not(made.seconds("a100", Collective::all_to_all, kFour, 2000));
  cr_assert_not(made.seconds("a100", Collective::all_reduce, {2, 2, 1, 1}, 2000),
                "nothing was measured between nodes");
}

Test(collectives, other_shapes_take_as_many_ring_steps_more) {
  // 6 steps of 250 to 25000 bytes each.
  const auto made =
      table({series(Collective::all_reduce, kFour, {{1000, 60e-6}, {100000, 600e-6}})});
  // 14 steps of 2000 / 8 bytes.
  cr_assert(near(*made.seconds("a100", Collective::all_reduce, {8, 1, 1, 1}, 2000), 140e-6));
  cr_assert(near(*made.seconds("a100", Collective::reduce_scatter, {8, 1, 1, 1}, 2000), 70e-6),
            "half of an all-reduce");
}

Test(collectives, the_nearest_shape_is_scaled_and_shares_the_network) {
  const auto made = table({series(Collective::all_reduce, {1, 2, 1, 1}, {{1000, 1}, {8000, 8}}),
                           series(Collective::all_reduce, {8, 1, 1, 1}, {{1000, 9}})});
  cr_assert(near(*made.seconds("a100", Collective::all_reduce, {1, 2, 2, 2}, 2000), 4),
            "two groups share a node's network");
  cr_assert(near(*made.seconds("a100", Collective::all_reduce, {1, 4, 1, 1}, 4000), 6),
            "6 steps of 1000 bytes in place of 2");
}

Test(collectives, a_send_is_one_step_of_all_bytes) {
  const auto made = table({series(Collective::send, {2, 1, 1, 1}, {{1000, 1}, {2000, 2}})});
  cr_assert(near(*made.seconds("a100", Collective::send, {4, 1, 1, 1}, 1500), 1.5));
}

Test(collectives, bad_tables_are_refused_by_name) {
  const auto refused = [](std::vector<CollectiveSeries> all) {
    const auto made = CollectiveTable::make(std::move(all));
    return made ? std::string() : made.error().message();
  };
  const auto one = [](std::vector<CollectiveSeries::Size> sizes) {
    return std::vector{series(Collective::all_reduce, kFour, std::move(sizes))};
  };
  cr_assert_eq(refused(one({{2000, 1}, {1000, 1}})),
               "all-reduce of 4 ranks a node on 1 node of type a100: size 1000 follows size 2000; "
               "sort each series by size");
  cr_assert_eq(refused(one({{1000, 0}})),
               "all-reduce of 4 ranks a node on 1 node of type a100: 0 s for 1000 bytes; measure "
               "that size again");
  cr_assert_eq(refused(one({{1000, std::nan("")}})),
               "all-reduce of 4 ranks a node on 1 node of type a100: nan s for 1000 bytes; "
               "measure that size again");
  cr_assert_eq(refused(one({})),
               "all-reduce of 4 ranks a node on 1 node of type a100 has no sizes; measure one at "
               "least");
  cr_assert_eq(refused({series(Collective::all_reduce, {1, 1, 1, 1}, {{1, 1}})}),
               "all-reduce of 1 rank a node on 1 node of type a100: give 2 to 65536 ranks in all");
  auto twice = one({{1, 1}});
  twice.push_back(twice.front());
  cr_assert_eq(refused(twice),
               "all-reduce of 4 ranks a node on 1 node of type a100, 1 group at a time, is there "
               "twice; leave one out");
  auto lacking = one({{1, 1}});
  lacking.push_back(series(Collective::reduce_scatter, kFour, {{1, 1}}));
  lacking.push_back(series(Collective::all_gather, kFour, {{1, 1}}));
  cr_assert_eq(refused(lacking),
               "GPU type a100 has no times of all-to-all; measure it, or leave the type out");
}

Test(collectives, a_table_is_the_same_after_json) {
  const auto made = table({series(Collective::all_reduce, {2, 4, 2, 8}, {{1000, 0.1}, {2e9, 0.25}}),
                           series(Collective::send, kFour, {{4, 1e-6}})});
  const auto again = CollectiveTable::from_json(*Json::parse(made.to_json().dump()));
  cr_assert(again.ok());
  cr_assert_eq(again->to_json().dump(), made.to_json().dump());
  cr_assert_eq(again->series().size(), 2u);
  cr_assert(again->series()[0].shape == made.series()[0].shape);
  cr_assert(again->series()[0].sizes == made.series()[0].sizes);
  const auto refused = [](const char* text) {
    return CollectiveTable::from_json(*Json::parse(text)).error().message();
  };
  cr_assert_eq(refused("[]"), "a communication table is a JSON object");
  cr_assert_eq(refused("{\"version\":1,\"series\":[{\"type\":\"a100\",\"primitive\":\"gossip\"}]}"),
               "series 0: \"primitive\" is \"gossip\"; use all-reduce, reduce-scatter, all-gather, "
               "all-to-all or send");
}
