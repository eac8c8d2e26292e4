// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/doctor/gather.h"

#include <criterion/criterion.h>
#include <filesystem>
#include <fstream>

#include "tools/doctor/child_process.h"
#include "tools/doctor/elf_symbol.h"

using namespace swell;
using namespace swell::tools::doctor;

extern "C" __attribute__((visibility("default"))) const std::uint32_t plugin_version = 0x160508;
extern "C" __attribute__((visibility("default"))) const char plugin_name[] = "a test";

namespace {

/// A folder that goes with the test.
struct Folder {
  std::string path;
  Folder() {
    char name[] = "/tmp/swell-gather-test-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string write(const std::string& name, const std::string& text) const {
    std::ofstream(path + "/" + name) << text;
    return path + "/" + name;
  }
};

}  // namespace

Test(gather, reads_what_sacctmgr_prints) {
  const auto read = accounting_from("normal|expansion,low|cluster|00:00:00||||||||||||||||||\n"
                                    "expansion||cancel|1-00:01:30||gres/gpu=8||||||||||||||||\n",
                                    "root||normal\nlab|ann|expansion,normal\n");
  cr_assert(read.ok(), "%s", read.error().message().c_str());
  cr_assert_eq(read->qos.size(), 2u);
  cr_assert_eq(read->qos[0].preempt.size(), 2u);
  cr_assert(read->qos[0].limits.empty());
  cr_assert_eq(read->qos[1].grace_s, 86490);
  cr_assert_eq(read->qos[1].limits[0].first, std::string("GrpTRES"));
  cr_assert_eq(read->qos[1].limits[0].second, std::string("gres/gpu=8"));
  cr_assert_eq(read->associations[1].qos.size(), 2u);
  cr_assert_not(accounting_from("normal|x\n", "").ok());
}

Test(gather, finds_the_plugin_through_includes_of_plugstack) {
  const Folder folder;
  folder.write("spank_swell.so", "no ELF file");
  const std::string top = folder.write("plugstack.conf", "# spank_swell.so\ninclude more.d/*.conf\n");
  std::filesystem::create_directory(folder.path + "/more.d");
  auto entry = plugstack_entry(top, "/nowhere:" + folder.path);
  cr_assert(entry.ok() && !entry->has_value());
  folder.write("more.d/swell.conf", "required  spank_swell.so  # elastic jobs\n");
  entry = plugstack_entry(top, "/nowhere:" + folder.path);
  cr_assert(entry.ok() && entry->has_value());
  cr_assert((*entry)->required);
  cr_assert_eq((*entry)->where, folder.path + "/more.d/swell.conf");
  cr_assert_eq((*entry)->plugin.path, folder.path + "/spank_swell.so");
  cr_assert_not((*entry)->plugin.version.ok());
  cr_assert_not(plugstack_entry(folder.path + "/none", "").ok());
}

Test(gather, an_include_that_names_itself_ends) {
  const Folder folder;
  const std::string top = folder.write("plugstack.conf", "include plugstack.conf\n");
  cr_assert(plugstack_entry(top, "").ok());
}

Test(gather, reads_a_constant_from_an_elf_file_without_loading_it) {
  const auto version = read_elf_constant("/proc/self/exe", "plugin_version");
  cr_assert(version.ok(), "%s", version.error().message().c_str());
  cr_assert_eq(*version, 0x160508u);
  cr_assert_not(read_elf_constant("/proc/self/exe", "no_such_symbol").ok());
  cr_assert_eq(read_elf_text("/proc/self/exe", "plugin_name").value(), std::string("a test"));
}

Test(gather, broken_elf_files_are_errors) {
  const Folder folder;
  cr_assert_not(read_elf_constant(folder.path + "/none", "plugin_version").ok());
  cr_assert_not(read_elf_constant(folder.write("empty", ""), "plugin_version").ok());
  std::ifstream in("/proc/self/exe", std::ios::binary);
  std::string bytes(4096, '\0');
  in.read(bytes.data(), 4096);
  for (std::size_t size : {16, 63, 64, 200, 4096})
    cr_assert_not(read_elf_constant(folder.write("cut", bytes.substr(0, size)), "plugin_version").ok());
}

Test(gather, a_program_gives_its_output_or_its_complaint) {
  cr_assert_eq(output_of({"echo", "a  b"}, std::chrono::seconds(5)).value(), std::string("a  b\n"));
  const auto failed = output_of({"ls", "/no/such/folder"}, std::chrono::seconds(5));
  cr_assert(failed.error().message().find("/no/such/folder") != std::string::npos);
  cr_assert(output_of({"no-such-program"}, std::chrono::seconds(5)).error().message().find("no-such-program") == 0);
  cr_assert(output_of({"sleep", "60"}, std::chrono::seconds(1)).error().message().find("did not end within 1 s") !=
            std::string::npos);
}
