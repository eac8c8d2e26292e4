// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/output_names.h"

#include <algorithm>
#include <charconv>
#include <fmt/format.h>
#include <functional>

namespace swell::launcher {

namespace {

/// A specifier such as "%5t": its width (0: none is given) and its letter.
struct Specifier {
  int width = 0;
  char letter = 0;
};

/// Replaces each specifier, also "%%", by what `meaning` returns for it. A name with a backslash
/// stays as it is: Slurm replaces nothing in it.
std::string with_meanings(std::string_view name,
                          const std::function<std::string(const Specifier&)>& meaning) {
  if (name.find('\\') != std::string_view::npos) return std::string(name);
  std::string result;
  for (std::size_t i = 0; i < name.size(); ++i) {
    if (name[i] != '%' || i + 1 == name.size()) {
      result += name[i];
      continue;
    }
    Specifier one;
    const auto [end, problem] = std::from_chars(&name[i + 1], name.data() + name.size(), one.width);
    if (problem != std::errc{}) one.width = 0;
    i = static_cast<std::size_t>(end - name.data());
    if (i == name.size()) return result + "%";
    one.letter = name[i];
    result += meaning(one);
  }
  return result;
}

std::string as_written(const Specifier& one) {
  return one.width > 0 ? fmt::format("%{}{}", one.width, one.letter)
                       : fmt::format("%{}", one.letter);
}

/// Slurm pads numbers with zeros, to 10 digits at most.
std::string padded(std::string_view number, int width) {
  return fmt::format("{:0>{}}", number, std::clamp(width, 0, 10));
}

/// Returns the job's own number for the specifier; nullopt: it stands for another value.
std::optional<std::string> of_the_job(const Specifier& one, const RunNames& run) {
  const std::string job = std::to_string(run.job);
  if (one.letter == 'j') return padded(job, one.width);
  if (one.letter == 'A') return padded(run.array_job.empty() ? job : run.array_job, one.width);
  if (one.letter == 'a' && !run.array_task.empty()) return padded(run.array_task, one.width);
  return std::nullopt;
}

bool is_number(std::string_view name) {
  return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

/// Returns whether it is a file's name in which Slurm replaces specifiers.
bool is_of_files(std::string_view name) {
  return !name.empty() && name != "none" && name != "all" && name != "/dev/null" &&
         !is_number(name) && name.find('\\') == std::string_view::npos;
}

}  // namespace

std::string companion_output(std::string_view name, const RunNames& run, int node, int workers) {
  if (is_number(name)) return "none";  // the output of one task, which is the job's own
  // Tasks of node 3 are 30 and up, or 300 and up if some allocation has more than ten.
  int digits = 1;
  for (int most = 10; most < std::max(run.workers, workers); most *= 10) ++digits;
  return with_meanings(name, [&](const Specifier& one) {
    if (const auto number = of_the_job(one, run)) return *number;
    switch (one.letter) {
      case 'J': return fmt::format("{}.%s", run.job);
      case 'n': return padded(std::to_string(node), one.width);
      case 'N': return fmt::format("{}-{}", as_written(one), node);
      case 't':
        return fmt::format("{}%{}t", padded(std::to_string(node), one.width - digits), digits);
      default: return as_written(one);
    }
  });
}

bool may_share_output(std::string_view name) {
  bool is_shared = is_of_files(name);
  with_meanings(name, [&](const Specifier& one) {
    is_shared =
        is_shared && std::string_view("jJAasxu%").find(one.letter) != std::string_view::npos;
    return std::string();
  });
  return is_shared;
}

std::optional<std::string> shared_output(std::string_view name, const RunNames& run) {
  if (!may_share_output(name)) return std::nullopt;
  bool is_known = true;
  std::string file = with_meanings(name, [&](const Specifier& one) {
    if (one.letter == '%') return std::string("%");
    const auto word = one.letter == 'x'   ? std::optional(run.job_name)
                      : one.letter == 'u' ? std::optional(run.user)
                                          : of_the_job(one, run);
    is_known = is_known && word && !word->empty();
    return word.value_or("");
  });
  return is_known ? std::optional(std::move(file)) : std::nullopt;
}

bool appends(std::string_view mode, bool site_appends) {
  if (mode.empty()) return site_appends;
  return mode.front() == 'a' || mode.front() == 'A';
}

}  // namespace swell::launcher
