// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/conf_watch.h"

#include <criterion/criterion.h>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>

using swell::controller::ConfWatch;

namespace {

struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/swell-conf-watch-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string conf() const { return path + "/swell.conf"; }
  /// As an editor or a package does it: another file in the old one's place.
  void put(const char* text) const {
    std::ofstream(path + "/new") << text;
    std::filesystem::rename(path + "/new", conf());
  }
};

}  // namespace

Test(conf_watch, a_file_that_stays_is_not_read_again) {
  Folder folder;
  folder.put("ExpansionQOS=e\n");
  ConfWatch watch(folder.conf());
  cr_assert_not(watch.changed().has_value());
}

Test(conf_watch, a_change_is_told_once) {
  Folder folder;
  folder.put("ExpansionQOS=e\n");
  ConfWatch watch(folder.conf());
  folder.put("ExpansionQOS=e\nElasticity=drain\n");
  const auto change = watch.changed();
  cr_assert(change.has_value() && change->ok() && (*change)->draining);
  cr_assert_not(watch.changed().has_value());
}

Test(conf_watch, a_file_that_cannot_be_used_is_an_error_and_not_an_end) {
  Folder folder;
  folder.put("ExpansionQOS=e\n");
  ConfWatch watch(folder.conf());
  folder.put("Elasticity=perhaps\n");
  cr_assert_not(watch.changed()->ok());
  std::filesystem::remove(folder.conf());
  cr_assert_not(watch.changed()->ok());
  folder.put("ExpansionQOS=e\n");
  cr_assert(watch.changed()->ok());
}
