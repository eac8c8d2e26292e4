// SPDX-License-Identifier: GPL-2.0-or-later
// swell top: a screen that shows the cluster's GPUs and the elastic jobs, and stays up to date.
#include <csignal>
#include <cstdio>
#include <fmt/format.h>
#include <limits>
#include <memory>
#include <poll.h>
#include <sstream>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "tools/commands.h"
#include "tools/controller_client.h"
#include "tools/live_snapshot.h"
#include "tools/output.h"
#include "tools/top_screen.h"

namespace swell::tools {

namespace {

struct Options {
  double interval_s = 2;
  bool once = false, json = false;
};

volatile std::sig_atomic_t is_over = 0;

/// The terminal's alternate screen, with unbuffered keys; the destructor restores the terminal.
class Screen {
 public:
  Screen() {
    struct sigaction end {};
    end.sa_handler = [](int) { is_over = 1; };
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) sigaction(signal, &end, nullptr);
    has_keys_ = tcgetattr(STDIN_FILENO, &before_) == 0;
    if (has_keys_) {
      termios keys = before_;
      keys.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
      tcsetattr(STDIN_FILENO, TCSANOW, &keys);
    }
    std::fputs("\x1b[?1049h\x1b[?25l", stdout);
  }
  ~Screen() {
    std::fputs("\x1b[?25h\x1b[?1049l", stdout);
    std::fflush(stdout);
    if (has_keys_) tcsetattr(STDIN_FILENO, TCSANOW, &before_);
  }
  Screen(const Screen&) = delete;
  Screen& operator=(const Screen&) = delete;

  void show(const std::string& text) {
    std::fputs("\x1b[H", stdout);
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
      write_text(line);
      std::fputs("\x1b[K\n", stdout);
    }
    std::fputs("\x1b[J", stdout);
    std::fflush(stdout);
  }
  /// Waits. Returns false if `q` was typed, or a signal came.
  bool wait(double seconds) {
    pollfd keys{has_keys_ ? STDIN_FILENO : -1, POLLIN, 0};
    char key = 0;
    if (poll(&keys, 1, static_cast<int>(seconds * 1000)) > 0 && read(STDIN_FILENO, &key, 1) == 1 &&
        (key == 'q' || key == 'Q'))
      return false;
    return is_over == 0;
  }

 private:
  termios before_{};
  bool has_keys_ = false;
};

struct Look {
  GpuUse use;
  std::vector<JobRow> rows;
  Json metrics;
};

/// Adds the names of the users from whom nodes are withheld.
void name_users(Json& metrics) {
  Json withheld = Json::array();
  for (Json each : metrics.at("withheld").items()) {
    if (const auto uid = each.integer_at("uid", 0, std::numeric_limits<uid_t>::max()))
      each.set("user", name_of_user(static_cast<uid_t>(*uid)));
    withheld.append(std::move(each));
  }
  metrics.set("withheld", std::move(withheld));
}

Result<Look> look() {
  const auto snapshot = load_snapshot();
  if (!snapshot) return snapshot.error();
  auto rows = job_rows(*snapshot, {});
  if (!rows) return rows.error();
  Look seen{gpu_use(*snapshot), std::move(*rows), {}};
  control::Ask ask;
  ask.what = "metrics";
  if (const auto answer = ask_controller(ask)) seen.metrics = answer->details;
  if (is_object(seen.metrics)) name_users(seen.metrics);
  return seen;
}

int show_once(const Options& options) {
  const Result<Look> seen = look();
  if (!seen) return fail(seen.error());
  if (options.json) write_json(top_json(seen->use, seen->rows, seen->metrics));
  else write_text(top_screen(seen->use, seen->rows, seen->metrics, 200, 100'000));
  return 0;
}

int show(const Options& options) {
  if (options.json || options.once || isatty(STDOUT_FILENO) == 0) return show_once(options);
  Screen screen;
  do {
    winsize size{};
    if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) size = {24, 80, 0, 0};
    const Result<Look> seen = look();
    screen.show(
        seen ? top_screen(seen->use, seen->rows, seen->metrics, size.ws_col, size.ws_row - 1U)
             : control::printable(seen.error().message()) + "\n");
    if (std::ferror(stdout) != 0) break;
  } while (screen.wait(options.interval_s));
  return 0;
}

}  // namespace

Action add_top(CLI::App& app) {
  auto options = std::make_shared<Options>();
  CLI::App* command = app.add_subcommand("top", "The cluster's GPUs and elastic jobs, live");
  command->add_option("--interval", options->interval_s, "Seconds between two looks")
      ->check(CLI::Range(0.2, 3600.0))
      ->capture_default_str();
  command->add_flag("--once", options->once, "Show it once and end");
  command->add_flag("--json", options->json, "Print JSON once, as swell(1) describes");
  return [options] { return show(*options); };
}

}  // namespace swell::tools
