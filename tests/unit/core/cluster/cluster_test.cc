// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/cluster/cluster.h"

#include <criterion/criterion.h>
#include <string>
#include <utility>

#include "core/cluster/presets.h"

using namespace swell;
using namespace swell::cluster;

namespace {

Node node(const char* name, int rack, std::vector<int> gpus, double network = 1e11) {
  return {name, rack, std::move(gpus), network};
}
std::vector<GpuType> two_types() { return {*find_gpu_type("h100"), *find_gpu_type("a40")}; }

std::string refused(std::vector<Node> nodes, double factor = 1) {
  const auto made = Cluster::make("c", two_types(), std::move(nodes), {factor});
  cr_assert_not(made.ok());
  return made.error().message();
}

}  // namespace

Test(cluster, gpus_are_known_by_the_names_of_slurm_and_of_the_driver) {
  const std::pair<const char*, const char*> names[] = {{"nvidia_h100_80gb_hbm3", "h100"},
                                                       {"NVIDIA H100 80GB HBM3", "h100"},
                                                       {"nvidia_h100_nvl", "h100"},
                                                       {"h100-sxm5-80gb", "h100"},
                                                       {"NVIDIA H200", "h200"},
                                                       {"nvidia_h20", "h20"},
                                                       {"a100-sxm4-80gb", "a100"},
                                                       {"NVIDIA A100-SXM4-40GB", "a100-40g"},
                                                       {"nvidia_a100_80gb_pcie", "a100"},
                                                       {"a100_40g", "a100-40g"},
                                                       {"Tesla V100-SXM2-32GB", "v100"},
                                                       {"tesla_v100-sxm2-16gb", "v100-16g"},
                                                       {"l40s", "l40s"},
                                                       {"NVIDIA L40S", "l40s"},
                                                       {"nvidia_l4", "l4"},
                                                       {"tesla_t4", "t4"},
                                                       {"NVIDIA GeForce GTX 1080 Ti", "1080ti"},
                                                       {"gtx1080ti", "1080ti"}};
  for (const auto& [name, known] : names) {
    const auto type = find_gpu_type(name);
    cr_assert(type.has_value(), "%s", name);
    cr_assert_eq(type->name, std::string(known), "%s: %s", name, type->name.c_str());
  }
  for (const char* name : {"", "nvidia", "80gb", "gpu", "1g.10gb", "mi300x", "h1000", "xh100"})
    cr_assert_not(find_gpu_type(name).has_value(), "%s", name);
  const auto made = preset("2x8-nvidia_h100_80gb_hbm3+1x4-a100-sxm4-80gb");
  cr_assert(made.ok());
  cr_assert_eq(made->gpu_count(), 20);
}

Test(cluster, a_mig_instance_is_a_share_of_its_gpu) {
  const GpuType whole = *find_gpu_type("h100");
  for (const char* name :
       {"nvidia_h100_80gb_hbm3_3g.40gb", "h100_3g.40gb", "h100-3g.40gb", "H100 MIG 3g.40gb"}) {
    const auto part = find_gpu_type(name);
    cr_assert(part.has_value(), "%s", name);
    cr_assert_eq(part->name, std::string("h100-3g.40gb"));
    cr_assert_float_eq(part->bf16_tflops, whole.bf16_tflops * 3 / 7, 1e-6);
    cr_assert_eq(part->memory_bytes, 40e9);
    cr_assert_lt(part->link_bytes_per_s, whole.link_bytes_per_s);
  }
  cr_assert_eq(find_gpu_type("a100_7g.80gb")->bf16_tflops, find_gpu_type("a100")->bf16_tflops);
  cr_assert_eq(find_gpu_type("h100_9g.40gb")->name, "h100");
}

Test(cluster, the_catalogue_has_the_papers_gpus_and_newer_ones) {
  for (const char* name : {"h100", "H200", "b200", "a100", "a100-40g", "v100", "a40", "a10", "l20"})
    cr_assert(find_gpu_type(name).has_value(), "%s", name);
  cr_assert_not(find_gpu_type("h10").has_value());
  cr_assert_eq(find_gpu_type("v100")->tflops(Precision::bf16), 125,
               "no bf16: its next wider format is fp16");
  cr_assert_eq(find_gpu_type("a100")->tflops(Precision::fp8), 312);
}

Test(cluster, bandwidth_is_the_link_within_a_node_and_the_network_between) {
  const Cluster c =
      Cluster::make(
          "c", two_types(),
          {node("a", 0, {0, 0, 1}, 2e11), node("b", 0, {0}, 1e11), node("d", 1, {0}, 2e11)}, {0.5})
          .value();
  cr_assert_eq(c.effective_bandwidth({0, 0}, {0, 1}), 450e9);
  cr_assert_eq(c.effective_bandwidth({0, 0}, {0, 2}), 32e9, "the slower of the two GPUs' links");
  cr_assert_eq(c.node_bandwidth(0, 1), 1e11, "the slower of the two nodes' networks");
  cr_assert_eq(c.node_bandwidth(0, 2), 1e11, "half across racks");
}

Test(cluster, one_gpu_has_one_card_of_its_node) {
  Node shared = node("d", 0, {0, 0, 0, 0}, 4e11);
  shared.network_cards = 2;
  const Cluster c =
      Cluster::make("c", two_types(),
                    {node("a", 0, {0, 0, 0, 0}, 4e11), node("b", 1, {0, 0, 0, 0}, 4e11), shared},
                    {0.5})
          .value();
  cr_assert_eq(c.effective_bandwidth({0, 0}, {2, 3}), 1e11, "a card of four");
  cr_assert_eq(c.effective_bandwidth({0, 0}, {1, 0}), 0.5e11, "and half of it across racks");
  cr_assert_eq(c.network_bandwidth(0, 2, 2, 1), 2e11,
               "two cards; or one of the two that four GPUs share");
  cr_assert_eq(c.network_bandwidth(0, 4, 2, 4), c.node_bandwidth(0, 2));
  cr_assert_eq(Cluster::from_json(c.to_json())->to_json().dump(), c.to_json().dump());
}

Test(cluster, a_nodes_own_link_makes_a_variant_of_its_type) {
  Node pcie = node("b", 0, {0, 0});
  pcie.link_bytes_per_s = 55e9;
  const Cluster c = Cluster::make("c", two_types(), {node("a", 0, {0, 0}), pcie}).value();
  cr_assert_eq(c.effective_bandwidth({0, 0}, {0, 1}), 450e9);
  cr_assert_eq(c.effective_bandwidth({1, 0}, {1, 1}), 55e9);
  cr_assert_eq(c.type(c.type_of({1, 0})).name, c.type(c.type_of({0, 0})).name);
  const auto read = Cluster::from_json(c.to_json());
  cr_assert_eq(read->effective_bandwidth({1, 0}, {1, 1}), 55e9);
  cr_assert_eq(read->to_json().dump(), c.to_json().dump());
}

Test(cluster, a_measured_bandwidth_overrides_the_description) {
  const Cluster c = Cluster::make("c", two_types(), {node("a", 0, {0}), node("b", 0, {0})},
                                  {.measured = {{{1, 0}, 7e9}}})
                        .value();
  cr_assert_eq(c.node_bandwidth(0, 1), 7e9);
  cr_assert_eq(c.node_bandwidth(1, 0), 7e9);
  cr_assert_not(c.interconnect().is_regular());
}

Test(cluster, json_round_trips) {
  const Cluster made = Cluster::make("c", two_types(), {node("a", 0, {0, 0, 1}), node("b", 3, {1})},
                                     {0.25, {{{0, 1}, 5e9}}})
                           .value();
  const auto read = Cluster::from_json(made.to_json());
  cr_assert(read.ok());
  cr_assert_eq(read->to_json().dump(), made.to_json().dump());
}

Test(cluster, json_takes_types_from_the_catalogue_and_changes_them) {
  const auto read =
      Cluster::from_json(*Json::parse(R"({"types":[{"name":"h100","memory_gb":40}],"nodes":[
    {"name":"a","network_gbytes_per_s":50,"gpus":[{"type":"h100","count":4},{"type":"v100","count":2}]}]})"));
  cr_assert(read.ok());
  cr_assert_eq(read->gpu_count(), 6);
  cr_assert_eq(read->type(0).memory_bytes, 40e9);
  cr_assert_eq(read->type(read->type_of({0, 5})).name, "v100");
}

Test(cluster, errors_name_the_node_and_what_is_wrong) {
  cr_assert_eq(refused({}), "the cluster has no nodes; at least 1 is needed");
  cr_assert_eq(refused({node("a", 0, {})}), "node a has no GPUs; at least 1 is needed");
  cr_assert_eq(refused({node("a", 0, {0}), node("a", 0, {0})}), "node a is listed twice");
  cr_assert_eq(refused({node("a", 0, {2})}),
               "node a has a GPU of type number 2; there are 2 types");
  cr_assert_eq(refused({node("a", 0, {0}, 0)}),
               "node a has no network bandwidth; it must be above 0");
  cr_assert_eq(refused({node("a", 0, {0})}, 0),
               "the cross-rack factor is 0; it must be above 0 and at most 1");
}

Test(cluster, presets_are_the_papers_clusters) {
  const Cluster small = preset("8x8-h100").value();
  cr_assert_eq(small.gpu_count(), 64);
  cr_assert_eq(small.node_bandwidth(0, 7), 400e9);
  const Cluster large = preset("128x8-h100").value();
  cr_assert_eq(large.gpu_count(), 1024);
  cr_assert_eq(large.node(15).rack, 0);
  cr_assert_eq(large.node(16).rack, 1);
  cr_assert_eq(large.node_bandwidth(0, 16), 200e9);
  for (const char* wrong : {"", "8x8", "0x8-h100", "8x65-h100", "8x8-h10", "9999x8-h100"})
    cr_assert_not(preset(wrong).ok(), "%s", wrong);
}

Test(cluster, a_preset_may_be_written_with_colons) {
  for (const char* name : {"4x8:h100+2x4:l20", "4x8-h100+2x4:l20"}) {
    const auto made = preset(name);
    cr_assert(made.ok(), "%s: %s", name, made.ok() ? "" : made.error().message().c_str());
    cr_assert_eq(made->name(), "4x8-h100+2x4-l20");
    cr_assert_eq(made->gpu_count(), 40);
  }
  cr_assert(preset("1x8:nvidia_h100_80gb_hbm3").ok());
  cr_assert_neq(preset("1x8:h99").error().message().find("catalogue: b200, h200, h100, "),
                std::string::npos);
}

Test(cluster, a_preset_may_have_nodes_of_several_types) {
  const Cluster mixed = preset("4x8-h100+2x4-l20").value();
  cr_assert_eq(mixed.name(), "4x8-h100+2x4-l20");
  cr_assert_eq(mixed.nodes().size(), 6u);
  cr_assert_eq(mixed.gpu_count(), 40);
  cr_assert_eq(mixed.type(mixed.type_of({3, 7})).name, "h100");
  cr_assert_eq(mixed.type(mixed.type_of({4, 0})).name, "l20");
  cr_assert_eq(mixed.node(4).name, "n5");
  cr_assert_eq(mixed.node(5).gpus.size(), 4u);
  const Cluster twice = preset("10x8-h100+10x4-h100").value();
  cr_assert_eq(twice.types().size(), 1u);
  cr_assert_eq(twice.node(16).rack, 1, "racks of 16 nodes, whatever they have");
  for (const char* wrong : {"4x8-h100+", "+4x8-h100", "4x8-h100+4x8", "4096x8-h100+1x8-l20"})
    cr_assert_not(preset(wrong).ok(), "%s", wrong);
}
