// SPDX-License-Identifier: GPL-2.0-or-later
#include <algorithm>
#include <criterion/criterion.h>
#include <cstdlib>
#include <dlfcn.h>
#include <string>

#include "topo/machine.h"

using namespace swell::topo;

namespace {

/// Reads a machine of as many GPUs as `modes` has, with these links.
Machine read(const char* modes, const char* links) {
  cr_assert_not_null(dlopen(SWELL_STAND_IN_NVML, RTLD_NOW | RTLD_LOCAL), "%s", dlerror());
  setenv("STAND_IN_COMPUTE_MODES", modes, 1);
  setenv("STAND_IN_NVLINKS", links, 1);
  setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere", 1);
  Machine machine;
  const auto gpus = 1 + std::count(modes, modes + std::string(modes).size(), ',');
  for (int gpu = 0; gpu < gpus; ++gpu) {
    machine.gpus.emplace_back();
    machine.gpus.back().place.pci = "0000:0" + std::to_string(gpu + 1) + ":00.0";
  }
  read_nvml(machine);
  return machine;
}

}  // namespace

/// The left numbers are nvml.h's NVML_NVLINK_VERSION_1_0 to NVML_NVLINK_VERSION_5_0; with the links
/// of a GPU the products are NVIDIA's data sheets' halves (P100 80, V100 150, A100 300, H100 450,
/// B200 900 GB/s in one direction).
Test(nvml_reader, nvlink_versions_give_the_bandwidth_of_the_data_sheets) {
  const struct {
    unsigned nvml;
    int links;
    double gpu_gb_per_s;
  } kKnown[] = {{1, 4, 80}, {2, 6, 150}, {4, 12, 300}, {5, 12, 300}, {6, 18, 450}, {7, 18, 900}};
  for (const auto& each : kKnown)
    cr_assert_eq(each.links * nvlink_bytes_per_s(each.nvml).value() / 1e9, each.gpu_gb_per_s,
                 "version %u", each.nvml);
}

Test(nvml_reader, an_unknown_nvlink_version_is_not_guessed) {
  for (const unsigned version : {0u, 8u, 255u}) cr_assert_not(nvlink_bytes_per_s(version));
}

Test(nvml_reader, all_links_of_two_gpus_count_together) {
  const Machine machine = read("0,0,0", "0-1:6:12,1-2:4:4");
  cr_assert_eq(machine.nvlinks.size(), 2);
  cr_assert_eq(machine.nvlinks[0].bytes_per_s, 12 * 25e9);
  cr_assert_eq(machine.nvlinks[1].bytes_per_s, 4 * 25e9);
  cr_assert_eq(machine.gpus[2].product, std::string("Stand-In 2"));
  cr_assert(machine.notes.empty());
}

Test(nvml_reader, by_a_switch_each_gpu_is_reached_with_all_links) {
  // This machine has no GPU 8: a switch has that address.
  const Machine machine = read("0,0", "0-8:7:18,1-8:7:18");
  cr_assert_eq(machine.nvlinks.size(), 1);
  cr_assert_eq(machine.nvlinks[0].bytes_per_s, 18 * 50e9);
}

Test(nvml_reader, links_of_an_unknown_version_have_the_speed_that_the_driver_states) {
  setenv("STAND_IN_NVLINK_MBPS", "53125", 1);
  const Machine machine = read("0,0", "0-1:8:36");
  cr_assert_eq(machine.nvlinks.at(0).bytes_per_s, 36 * 53.125e9);
  cr_assert_eq(machine.notes.size(), 1);
  cr_assert_eq(machine.notes[0],
               std::string("NVIDIA's driver gives NVLink version 8, which Swell does not know: the "
                           "driver's 53 GB/s a link are used; measure with swell topo calibrate"));
}

Test(nvml_reader, links_of_which_nobody_knows_the_speed_are_said_and_not_guessed) {
  for (const char* speed : {"", "0", "2000000"}) {
    setenv("STAND_IN_NVLINK_MBPS", speed, 1);
    const Machine machine = read("0,0", "0-1:9:2");
    cr_assert(machine.nvlinks.empty());
    cr_assert_eq(machine.notes.size(), 1);
    cr_assert_eq(machine.notes[0],
                 std::string("NVIDIA's driver gives NVLink version 9, which Swell does not know: "
                             "the driver states no speed, and these links are not counted; measure "
                             "with swell topo calibrate"));
  }
}

Test(nvml_reader, a_known_version_counts_whatever_line_rate_the_driver_states) {
  setenv("STAND_IN_NVLINK_MBPS", "26562", 1);
  cr_assert_eq(read("0,0", "0-1:6:18").nvlinks.at(0).bytes_per_s, 18 * 25e9);
}

Test(nvml_reader, active_links_that_lead_nowhere_are_said) {
  const Machine machine = read("0,0", "0-1:6:2,0-64:6:1,1-64:6:2");
  cr_assert_eq(machine.nvlinks.at(0).bytes_per_s, 2 * 25e9);
  cr_assert_eq(machine.notes.size(), 1);
  cr_assert_eq(machine.notes[0],
               std::string("NVIDIA's driver does not say where 3 active NVLinks lead: not counted; "
                           "measure with swell topo calibrate"));
}

Test(nvml_reader, a_fabric_that_may_reach_other_nodes_is_said) {
  setenv("STAND_IN_FABRIC", "7:2", 1);
  Machine machine = read("0,0", "0-8:7:18,1-8:7:18");
  cr_assert_eq(machine.nvlinks.at(0).bytes_per_s, 18 * 50e9);
  cr_assert_eq(machine.notes.size(), 1);
  cr_assert_eq(machine.notes[0],
               std::string("the GPUs are in NVLink fabric 00000000000000000000000000000007, clique "
                           "2, which may reach other nodes: between nodes Swell counts on the "
                           "network alone"));
  setenv("STAND_IN_FABRIC", "0:1", 1);
  machine = read("0,0", "0-8:7:18,1-8:7:18");
  cr_assert(machine.notes.empty(), "an HGX H100, whose fabric ends with the node");
}

Test(nvml_reader, gpus_that_take_one_program_at_a_time_are_said) {
  const Machine machine = read("0,3", "");
  cr_assert_eq(machine.notes.size(), 1);
  cr_assert_eq(machine.notes[0],
               std::string("GPU 1 is in compute mode EXCLUSIVE_PROCESS, which refuses the second "
                           "program of a live switch: live jobs are resized by restarts here"));
}
