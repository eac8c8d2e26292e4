// SPDX-License-Identifier: GPL-2.0-or-later
#include <criterion/criterion.h>

#include "topo/machine.h"

using namespace swell::topo;

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
