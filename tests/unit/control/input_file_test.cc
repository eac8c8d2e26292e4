// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/input_file.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "control/socket.h"

using namespace swell;
using namespace swell::control;

namespace {

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/swell-input-XXXXXX";
    path_ = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  std::string at(const char* name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

std::string refusal(const Result<std::string>& read) {
  cr_assert_not(read.ok());
  return read.error().message();
}

}  // namespace

Test(input_file, a_regular_file_is_read_through_links_too) {
  const Folder folder;
  std::ofstream(folder.at("a")) << "text";
  std::filesystem::create_symlink("a", folder.at("b"));
  cr_assert_eq(*read_regular(folder.at("a")), std::string("text"));
  cr_assert_eq(*read_regular(folder.at("b")), std::string("text"));
  cr_assert(check_regular(folder.at("a")).ok());
  std::ofstream(folder.at("empty"));
  cr_assert_eq(check_regular(folder.at("empty")).error().message(),
               folder.at("empty") + ": it is empty");
}

// A test that waits for the FIFO's writer, or reads the device, does not end.
Test(input_file, refuses_anything_but_a_file_at_once, .timeout = 20) {
  const Folder folder;
  mkfifo(folder.at("fifo").c_str(), 0600);
  const Descriptor listening(socket(AF_UNIX, SOCK_STREAM, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  folder.at("socket").copy(address.sun_path, sizeof address.sun_path - 1);
  cr_assert_eq(bind(listening.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  cr_assert_eq(refusal(read_regular(folder.at("fifo"))),
               folder.at("fifo") + " is a FIFO; a regular file is needed");
  cr_assert_eq(refusal(read_regular(folder.at("socket"))),
               folder.at("socket") + " is a socket; a regular file is needed");
  cr_assert_eq(refusal(read_regular("/dev/zero")),
               std::string("/dev/zero is a device; a regular file is needed"));
  cr_assert_eq(refusal(read_regular("/tmp")),
               std::string("/tmp is a folder; a regular file is needed"));
  cr_assert_not(check_regular(folder.at("fifo")).ok());
}

Test(input_file, a_file_that_is_not_there_or_too_large_is_named) {
  const Folder folder;
  cr_assert_eq(refusal(read_regular(folder.at("none"))),
               folder.at("none") + ": No such file or directory");
  std::ofstream(folder.at("large")) << std::string(100, 'x');
  cr_assert(read_regular(folder.at("large"), 100).ok());
  cr_assert_eq(refusal(read_regular(folder.at("large"), 99)),
               folder.at("large") + " has more than 99 bytes; at most so many are read");
}

Test(input_file, a_folder_with_a_config_stands_for_it) {
  const Folder folder;
  cr_assert_eq(model_file_at(folder.at("")), folder.at(""));
  cr_assert_eq(model_file_at("gpt2-1.3b"), "gpt2-1.3b");
  std::ofstream(folder.at("config.json")) << "{}";
  cr_assert_eq(model_file_at(folder.at("")), folder.at("config.json"));
  cr_assert_eq(model_file_at(folder.at("config.json")), folder.at("config.json"));
}
