// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/container.h"

#include <algorithm>
#include <criterion/criterion.h>

using namespace swell::launcher;

namespace {

using Words = std::vector<std::string>;

constexpr const char* kNothing[] = {"PATH=/bin", nullptr};
constexpr const char* kBySbatch[] = {
    "_SLURM_SPANK_OPTION_pyxis_container_image=q.sqsh",
    "_SLURM_SPANK_OPTION_pyxis_container_mounts=/data:/data,/a=b:/c", nullptr};

Options with(Words each_step) {
  Options options;
  options.each_step = std::move(each_step);
  return options;
}

}  // namespace

Test(container, is_told_by_the_options_of_pyxis) {
  cr_assert(is_in_container(with({"--container-image=q"}), kNothing));
  cr_assert(is_in_container(with({"-l", "--container-name", "q"}), kNothing));
  cr_assert(is_in_container(with({}), kBySbatch));
  cr_assert_not(is_in_container(with({"--container-mounts=/a:/a", "--demo-image=q"}), kNothing));
  cr_assert_not(is_in_container(with({"--container-imagery=q"}), kNothing));
}

Test(container, the_shim_runs_by_the_loader_and_libraries_of_the_host) {
  const ContainerShim made = container_shim(
      "/opt/swell-worker", "/x/m/sock", {"/lib64/ld-linux-x86-64.so.2", "/usr/lib/libfmt.so.9"});
  cr_assert_eq(made.command, (Words{"/run/swell/lib/ld-linux-x86-64.so.2", "--library-path",
                                    "/run/swell/lib", "/run/swell/swell-worker"}));
  cr_assert_eq(made.munge_socket, std::string("/run/swell/munge/sock"));
  cr_assert_eq(made.mounts,
               std::string("/x/m:/run/swell/munge,/opt/swell-worker:/run/swell/swell-worker:ro,"
                           "/lib64/ld-linux-x86-64.so.2:/run/swell/lib/ld-linux-x86-64.so.2:ro,"
                           "/usr/lib/libfmt.so.9:/run/swell/lib/libfmt.so.9:ro"));
  cr_assert(container_shim("/w", "", {}).mounts.starts_with("/run/munge:/run/swell/munge,"));
}

Test(container, the_libraries_of_this_program_have_its_loader) {
  const auto found = own_libraries();
  cr_assert_eq(std::count_if(found.begin(), found.end(),
                             [](const std::string& each) { return each.find("/ld") != each.npos; }),
               1);
}

Test(container, mounts_are_added_to_those_of_the_user) {
  const auto after = [](Words words, const char* const* environment) {
    Options options = with(std::move(words));
    add_mounts(options, environment, "/s:/t");
    return options.each_step;
  };
  cr_assert_eq(after({"-l"}, kNothing), (Words{"-l", "--container-mounts=/s:/t"}));
  cr_assert_eq(after({"--container-mounts", "/a:/b", "-l"}, kNothing),
               (Words{"-l", "--container-mounts=/a:/b,/s:/t"}));
  cr_assert_eq(after({}, kBySbatch), Words{"--container-mounts=/data:/data,/a=b:/c,/s:/t"});
  cr_assert_eq(after({"--container-mounts=/a:/b"}, kBySbatch),
               Words{"--container-mounts=/a:/b,/s:/t"});
}

Test(container, the_host_knows_a_remapped_root_by_its_user) {
  cr_assert_eq(outside_uid("         0       1000          1\n", 0), 1000u);
  cr_assert_eq(outside_uid("0 1000 1\n1 100000 65536\n", 5), 100004u);
  cr_assert_eq(outside_uid("         0          0 4294967295\n", 1000), 1000u);
  cr_assert_eq(outside_uid("", 7), 7u);
}
