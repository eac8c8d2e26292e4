// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/other_launcher.h"

#include <algorithm>
#include <fmt/format.h>

namespace swell::launcher {

namespace {

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

bool is_python(std::string_view name) {
  return name == "python" || name.starts_with("python2") || name.starts_with("python3");
}

bool is_one_of(std::string_view word, std::initializer_list<std::string_view> words) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

/// The module of `python -m MODULE`, and where its arguments begin; an empty name: no module is
/// run.
struct Module {
  std::string_view name;
  std::size_t arguments = 0;
};
Module module_of(const std::vector<std::string>& command, std::size_t at) {
  for (++at; at < command.size(); ++at) {
    const std::string_view word = command[at];
    if (word == "-m" && at + 1 < command.size()) return {command[at + 1], at + 2};
    if (word.starts_with("-m") && word.size() > 2) return {word.substr(2), at + 1};
    if (is_one_of(word, {"-W", "-X"})) ++at;  // these have a value of their own
    else if (!word.starts_with("-") || word == "-" || word == "-c") break;
  }
  return {};
}

/// Returns the program that the launcher would start: from the first word that looks like a script,
/// or after -m.
std::string inner_program(const std::vector<std::string>& command, std::size_t at) {
  const auto from = [&command](std::size_t begin, std::string text) {
    for (std::size_t i = begin; i < command.size(); ++i) text += " " + command[i];
    return text;
  };
  for (std::size_t i = at; i < command.size(); ++i) {
    if (is_one_of(command[i], {"-m", "--module"}) && i + 1 < command.size())
      return from(i + 1, "python -m");
    if (command[i].ends_with(".py")) return from(i, "python");
  }
  return {};
}

/// Returns where the program itself stands after wrappers such as `env A=1 timeout 9 uv run`. A
/// wrapper's own words are options, their values, numbers and variables. Launchers that this misses
/// are found by the shim while they run: inner_worker().
std::size_t after_wrappers(const std::vector<std::string>& command) {
  std::size_t at = 0;
  while (at < command.size() && is_wrapper(command, at)) {
    if (at + 1 < command.size() && command[at + 1] == "run") ++at;
    for (++at; at < command.size(); ++at) {
      const std::string& word = command[at];
      if (is_one_of(word, {"-n", "-u", "--unset", "-s", "--signal", "-k", "--kill-after",
                           "--python", "--with", "--extra", "--group", "--project"}))
        ++at;
      else if (!word.starts_with("-") && word.find('=') == std::string::npos &&
               (word.empty() || word.front() < '0' || word.front() > '9'))
        break;
    }
  }
  return at;
}

bool is_shell(std::string_view name) {
  return is_one_of(name, {"bash", "sh", "dash", "zsh", "ksh"});
}

/// Returns the simple commands of a shell's text, each as its words without quotes and without
/// variables set in front of it. Returns none for a text with branches, loops or functions: which
/// commands run is known there only when they do.
std::vector<std::vector<std::string>> simple_commands(std::string_view text) {
  std::vector<std::vector<std::string>> all(1);
  std::string word;
  bool is_word = false;
  char quote = 0;
  const auto end_word = [&] {
    const bool is_variable = all.back().empty() && word.find('=') != std::string::npos;
    if (is_word && !is_variable) all.back().push_back(word);
    word.clear();
    is_word = false;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quote != 0 ? c == quote : c == '\'' || c == '"') {
      quote = quote != 0 ? 0 : c;
      is_word = true;
    } else if (c == '\\' && quote != '\'' && i + 1 < text.size()) {
      word += text[++i];
      is_word = true;
    } else if (quote == 0 && std::string_view(" \t").find(c) != std::string_view::npos) {
      end_word();
    } else if (quote == 0 && std::string_view(";&|\n").find(c) != std::string_view::npos) {
      end_word();
      if (!all.back().empty()) all.emplace_back();
    } else {
      word += c;
      is_word = true;
    }
  }
  end_word();
  std::erase_if(all, [](const auto& command) { return command.empty(); });
  for (auto& command : all) {
    if (is_one_of(command.front(),
                  {"if", "case", "for", "while", "until", "select", "function", "("}) ||
        command.front().ends_with("()"))
      return {};
    if (command.front() == "exec" && command.size() > 1) command.erase(command.begin());
  }
  return all;
}

/// Returns launcher_in() of the text that a shell runs by -c at `at`; nullopt if Python itself runs
/// there, too: then the launcher may start something else than the training.
std::optional<std::string> launcher_in_shell(const std::vector<std::string>& command,
                                             std::size_t at) {
  std::optional<std::string> found;
  for (++at; at + 1 < command.size() && command[at].starts_with("-"); ++at) {
    if (command[at].starts_with("--") || !command[at].ends_with("c")) continue;
    for (const auto& one : simple_commands(command[at + 1]))
      if (auto launcher = launcher_in(one)) found = std::move(launcher);
      else if (is_python(base_name(one[std::min(after_wrappers(one), one.size() - 1)])))
        return std::nullopt;
    break;
  }
  return found;
}

}  // namespace

bool is_wrapper(const std::vector<std::string>& command, std::size_t at) {
  const std::string_view name = base_name(command[at]);
  if (is_one_of(name, {"env", "nice", "nohup", "time", "numactl", "stdbuf", "timeout", "taskset",
                       "setsid", "ionice", "chrt"}))
    return true;
  return is_one_of(name, {"uv", "poetry", "pdm", "pixi", "rye", "conda", "mamba", "micromamba"}) &&
         at + 1 < command.size() && command[at + 1] == "run";
}

std::optional<std::string> launcher_in(const std::vector<std::string>& command) {
  const std::size_t at = after_wrappers(command);
  if (at >= command.size()) return std::nullopt;
  const std::string_view name = base_name(command[at]);
  if (is_shell(name)) return launcher_in_shell(command, at);
  std::string launcher;
  std::size_t arguments = at + 1;
  const std::string_view subcommand =
      arguments < command.size() ? std::string_view(command[arguments]) : std::string_view();
  if (is_one_of(name, {"torchrun", "deepspeed", "horovodrun", "mpirun", "mpiexec", "orterun",
                       "prterun", "srun", "composer", "accelerate-launch", "ft_launcher"})) {
    launcher = name;
  } else if (name == "accelerate" && subcommand == "launch") {
    launcher = "accelerate launch";
    ++arguments;
  } else if (is_python(name)) {
    const Module module = module_of(command, at);
    if (is_one_of(module.name, {"torch.distributed.run", "torch.distributed.launch",
                                "torch.distributed.elastic_launch", "accelerate.commands.launch",
                                "deepspeed.launcher.runner", "deepspeed.launcher.launch",
                                "torch.distributed.launcher"})) {
      launcher = fmt::format("python -m {}", module.name);
      arguments = module.arguments;
    }
  }
  if (launcher.empty()) return std::nullopt;
  const std::string inner = inner_program(command, arguments);
  return fmt::format(
      "{} starts workers of its own, and so does swellrun: every worker would be a training by itself. "
      "Write the program alone: swellrun {}",
      launcher, inner.empty() ? "python SCRIPT [ARGUMENTS]" : inner);
}

}  // namespace swell::launcher
