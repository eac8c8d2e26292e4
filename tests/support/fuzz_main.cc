// SPDX-License-Identifier: GPL-2.0-or-later
// Replaces libFuzzer's main() if a target is linked with objects of another compiler. Runs the
// inputs of the given folders, then random changes of them until time is up, without coverage.
// Writes an input that ends the process to ARTIFACT_PREFIX.
//   TARGET SECONDS SEED ARTIFACT_PREFIX FOLDER...
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
extern "C" void __sanitizer_set_death_callback(void (*callback)());

namespace {

constexpr std::size_t kMaxInput = 4096;
constexpr unsigned kMaxInput_s = 10;

std::string input;
std::string artifact;

/// Writes the current input. Calls only functions that are safe in a signal handler.
void keep_input() {
  const int fd = ::open(artifact.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) return;
  [[maybe_unused]] const ssize_t written = ::write(fd, input.data(), input.size());
  ::close(fd);
}

void on_signal(int number) {
  keep_input();
  ::signal(number, SIG_DFL);
  ::raise(number == SIGALRM ? SIGKILL : number);
}

void run(const std::string& next) {
  input = next;
  ::alarm(kMaxInput_s);
  // Copy with exact capacity, so that reads beyond its end are detected.
  const std::vector<std::uint8_t> bytes(input.begin(), input.end());
  LLVMFuzzerTestOneInput(bytes.data(), bytes.size());
}

/// Returns a random change of `text`, possibly joined with `other`.
std::string changed(std::string text, const std::string& other, std::mt19937_64& random) {
  static const char* const kWords[] = {
      "-1",         "0",    "1e308", "-0.0", "18446744073709551616",
      "2147483648", "null", "[]",    "{}",   "\"\"",
      "true",       "nan",  ",",     ":",    "[",
      "}",          "\n",   "\xff"};
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  const std::size_t changes = 1 + below(4);
  for (std::size_t i = 0; i < changes; ++i) {
    const std::size_t at = below(text.size() + 1);
    const std::size_t length = std::min(text.size() - at, 1 + below(16));
    switch (below(7)) {
      case 0:
        if (at < text.size()) text[at] = static_cast<char>(text[at] ^ (1 << below(8)));
        break;
      case 1:
        if (at < text.size()) text[at] = static_cast<char>(random());
        break;
      case 2: text.erase(at, length); break;
      case 3: text.insert(at, text.substr(at, length)); break;
      case 4: text.insert(at, kWords[below(std::size(kWords))]); break;
      case 5: text.replace(at, length, kWords[below(std::size(kWords))]); break;
      default: text = text.substr(0, at) + other.substr(below(other.size() + 1)); break;
    }
    if (text.size() > kMaxInput) text.resize(kMaxInput);
  }
  return text;
}

}  // namespace

int main(int count, char** words) {
  if (count < 5) return 2;
  const std::chrono::duration<double> length(std::atof(words[1]));
  std::mt19937_64 random(std::strtoull(words[2], nullptr, 10));
  artifact = std::string(words[3]) + "crash";
  __sanitizer_set_death_callback(keep_input);
  for (const int number : {SIGABRT, SIGALRM}) ::signal(number, on_signal);
  std::vector<std::string> corpus = {""};
  for (int i = 4; i < count; ++i)
    for (const auto& file : std::filesystem::directory_iterator(words[i])) {
      std::ifstream stream(file.path(), std::ios::binary);
      corpus.emplace_back(std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>());
    }
  // Makes a run depend on the seed only, not on the order of files.
  std::sort(corpus.begin(), corpus.end());
  for (const std::string& one : corpus) run(one);
  std::size_t units = corpus.size();
  const auto end = std::chrono::steady_clock::now() + length;
  while (std::chrono::steady_clock::now() < end) {
    run(changed(corpus[random() % corpus.size()], corpus[random() % corpus.size()], random));
    ++units;
  }
  std::fprintf(stderr, "stat::number_of_executed_units: %zu\n", units);
  return 0;
}
