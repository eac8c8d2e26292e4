// SPDX-License-Identifier: GPL-2.0-or-later
#include "tools/files.h"

#include <criterion/criterion.h>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

namespace {

using swell::tools::read_file;
using swell::tools::replace_file;
using swell::tools::write_file;

/// A new folder, removed at the end.
struct Folder {
  std::string path = "/tmp/swell-files-XXXXXX";
  Folder() { cr_assert(mkdtemp(path.data()) != nullptr); }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string at(const char* name) const { return path + "/" + name; }
  int names() const {
    const std::filesystem::directory_iterator all(path);
    return static_cast<int>(std::distance(begin(all), end(all)));
  }
  void write(const char* name, const char* text) const { std::ofstream(at(name)) << text; }
};

}  // namespace

Test(files, a_fifo_is_written_where_it_has_a_reader_and_refused_soon_where_not, .timeout = 20) {
  const Folder folder;
  const std::string fifo = folder.at("fifo");
  cr_assert_eq(mkfifo(fifo.c_str(), 0666), 0);
  const auto refused = write_file(fifo, "fresh");
  cr_assert_not(refused.ok());
  cr_assert_eq(refused.error().message(),
               fifo + ": nobody reads this FIFO; start its reader first");
  const int reader = open(fifo.c_str(), O_RDONLY | O_NONBLOCK);
  cr_assert(write_file(fifo, "fresh").ok());
  char text[8] = {};
  cr_assert_eq(read(reader, text, sizeof text), 5);
  cr_assert_str_eq(text, "fresh");
  close(reader);
}

Test(files, links_planted_beside_a_file_are_not_written_through) {
  const Folder folder;
  folder.write("victim", "as it was");
  std::filesystem::create_symlink(folder.at("victim"), folder.at("metrics.prom.new"));
  cr_assert(replace_file(folder.at("metrics.prom"), "fresh").ok());
  cr_assert_eq(read_file(folder.at("victim")).value(), std::string("as it was"));
  cr_assert_not(std::filesystem::is_symlink(folder.at("metrics.prom")));
  cr_assert_eq(read_file(folder.at("metrics.prom")).value(), std::string("fresh"));
}

Test(files, a_folder_or_fifo_there_does_not_prevent_writing, .timeout = 20) {
  const Folder folder;
  std::filesystem::create_directories(folder.at("metrics.prom.new"));
  cr_assert_eq(mkfifo(folder.at("other.prom.new").c_str(), 0666), 0);
  for (const char* name : {"metrics.prom", "other.prom"}) {
    cr_assert(replace_file(folder.at(name), "fresh").ok());
    cr_assert_eq(read_file(folder.at(name)).value(), std::string("fresh"));
  }
}

Test(files, a_version_that_cannot_be_put_in_place_is_removed_and_the_old_one_stays) {
  const Folder folder;
  std::filesystem::create_directories(folder.at("metrics.prom"));
  const auto written = replace_file(folder.at("metrics.prom"), "fresh");
  cr_assert_not(written.ok());
  cr_assert(written.error().message().starts_with(folder.at("metrics.prom") + ": "), "%s",
            written.error().message().c_str());
  cr_assert_eq(folder.names(), 1);
}

Test(files, a_file_that_does_not_fit_leaves_nothing) {
  const Folder folder;
  folder.write("metrics.prom", "old");
  signal(SIGXFSZ, SIG_IGN);
  const rlimit few{4, 4};
  cr_assert_eq(setrlimit(RLIMIT_FSIZE, &few), 0);
  const bool written = replace_file(folder.at("metrics.prom"), "fresh, and long").ok();
  const std::string kept = read_file(folder.at("metrics.prom")).value();
  const int names = folder.names();
  cr_assert_not(written);
  cr_assert_eq(kept, "old");
  cr_assert_eq(names, 1);
}

Test(files, the_next_writer_removes_only_what_a_killed_one_left) {
  const Folder folder;
  folder.write("metrics.prom.swell-new-a1B2c3", "");
  for (const char* other : {"metrics.prom.swell-new-a1B2c34", "metrics.prom.backup",
                            "other.prom.swell-new-a1B2c3", "twice"})
    folder.write(other, "");
  std::filesystem::create_hard_link(folder.at("twice"), folder.at("metrics.prom.swell-new-twice1"));
  std::filesystem::create_symlink(folder.at("twice"), folder.at("metrics.prom.swell-new-symlnk"));
  cr_assert_eq(mkfifo(folder.at("metrics.prom.swell-new-afifo1").c_str(), 0666), 0);
  const int written = open(folder.at("metrics.prom.swell-new-locked").c_str(), O_CREAT | O_RDWR);
  cr_assert_eq(flock(written, LOCK_EX), 0);  // its writer lives
  const int before = folder.names();
  cr_assert(replace_file(folder.at("metrics.prom"), "fresh").ok());
  cr_assert_not(std::filesystem::exists(folder.at("metrics.prom.swell-new-a1B2c3")));
  cr_assert_eq(folder.names(), before);  // one less, and the file itself
  close(written);
}

Test(files, a_new_file_may_be_read_by_those_whom_the_umask_lets) {
  const Folder folder;
  umask(027);
  cr_assert(replace_file(folder.at("metrics.prom"), "fresh").ok());
  struct stat status {};
  cr_assert_eq(stat(folder.at("metrics.prom").c_str(), &status), 0);
  cr_assert_eq(status.st_mode & 07777, 0640);
}

Test(files, a_new_version_has_the_mode_of_the_old_one_where_that_is_asked_for) {
  const Folder folder;
  folder.write("swell.conf", "old");
  cr_assert_eq(chmod(folder.at("swell.conf").c_str(), 0640), 0);
  struct stat status {};
  cr_assert_eq(stat(folder.at("swell.conf").c_str(), &status), 0);
  cr_assert(replace_file(folder.at("swell.conf"), "fresh", &status).ok());
  cr_assert_eq(stat(folder.at("swell.conf").c_str(), &status), 0);
  cr_assert_eq(status.st_mode & 07777, 0640);
}
