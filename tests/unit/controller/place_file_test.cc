// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/place_file.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>

using namespace swell::controller;
using swell::control::ExpansionPlace;

namespace {

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/swell-place-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
};

}  // namespace

Test(place_file, the_last_place_is_read_back) {
  const Folder folder;
  const std::string path = folder.path + "/swell_place";
  cr_assert_not(load_place(path).is_named());
  cr_assert(save_place(path, {"expansion", ""}).ok());
  cr_assert_eq(load_place(path), (ExpansionPlace{"expansion", ""}));
  cr_assert(save_place(path, {"", "spare"}).ok());
  cr_assert_eq(load_place(path), (ExpansionPlace{"", "spare"}));
  struct stat status {};
  cr_assert_eq(stat(path.c_str(), &status), 0);
  cr_assert_eq(status.st_mode & 0777, 0600u);
}

Test(place_file, the_folder_is_what_slurm_conf_says_also_in_included_files) {
  const Folder folder;
  std::ofstream(folder.path + "/slurm.conf") << "ClusterName=c\ninclude more.conf\n";
  std::ofstream(folder.path + "/more.conf") << "statesavelocation=/var/lib/state # here\n";
  cr_assert_eq(state_folder(folder.path + "/slurm.conf"), "/var/lib/state");
  cr_assert_eq(state_folder(folder.path + "/none.conf"), "/var/spool");
}
