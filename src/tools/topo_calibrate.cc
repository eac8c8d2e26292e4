// SPDX-License-Identifier: GPL-2.0-or-later
// swell topo calibrate: measures between pairs of nodes, one pair at a time, and writes the
// calibration. For each pair a step on one node serves and a step on the other measures; both are
// this program again.
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <map>
#include <memory>
#include <set>
#include <sys/random.h>
#include <unistd.h>

#include "core/cluster/fabric.h"
#include "core/slurm_text/hostlist.h"
#include "slurm/site_config.h"
#include "tools/commands.h"
#include "tools/files.h"
#include "tools/output.h"
#include "tools/topo_cluster.h"
#include "topo/measure.h"

namespace swell::tools {

namespace {

struct Options {
  std::string output = "swell_calibration.json", method = "auto";
  std::string serve_at, connect_to;  ///< set in a step: the address to serve at, or to connect to
  std::vector<int> sizes = topo::message_sizes();
  int pairs = 4;
  int gpu = 0;  ///< GPU of a step, for NCCL
  double seconds = 0.2;
  bool local = false;
};

// ---- one step: one end of a measurement

/// Transport of the measured bytes. `link`: null if the control connection itself carries
/// them.
struct Carrier {
  std::string method;
  std::unique_ptr<topo::Link> link;
};

constexpr unsigned kCanTcp = 1, kCanUcx = 2, kCanNccl = 4;

/// Returns the transports that both ends have, the best first.
Result<std::vector<std::string>> agree(const Options& options, topo::Link& control) {
  const unsigned own = kCanTcp | (topo::has_ucx() ? kCanUcx : 0u) |
                       (topo::can_use_nccl(options.gpu) ? kCanNccl : 0u);
  const char mine = static_cast<char>(own);
  char theirs = 0;
  if (auto sent = control.send(&mine, 1, 1); !sent) return sent.error();
  if (auto got = control.receive(&theirs, 1, 1); !got) return got.error();
  const unsigned both = own & static_cast<unsigned char>(theirs);
  std::vector<std::string> methods;
  if ((both & kCanNccl) != 0) methods.emplace_back("nccl");
  if ((both & kCanUcx) != 0) methods.emplace_back("ucx");
  methods.emplace_back("tcp");
  return methods;
}

/// Opens the best transport that works. @param rank 0 for the end that serves, 1 for the end that
/// measures.
Result<Carrier> carrier(const Options& options, topo::Link& control, int rank) {
  std::vector<std::string> methods = {options.method};
  if (options.method == "auto") {
    auto agreed = agree(options, control);
    if (!agreed) return agreed.error();
    methods = *std::move(agreed);
  }
  if (methods.front() == "nccl") {
    auto link = topo::make_nccl(control, rank, options.gpu);
    if (link) return Carrier{"nccl", *std::move(link)};
    if (methods.size() == 1) return link.error();
    methods.erase(methods.begin());
    complain(fmt::format("{}; measuring with {} instead", link.error().message(), methods.front()));
  }
  if (methods.front() == "tcp") return Carrier{"tcp", nullptr};
  auto link = topo::make_ucx(control);
  if (!link) return link.error();
  return Carrier{"ucx", *std::move(link)};
}

/// Returns the link over which the two ends of a measurement agree. UCX progresses only in its own
/// calls, so its ends agree over the UCX link itself.
topo::Link& talk(const Carrier& carrier, topo::Link& control) {
  return carrier.method == "ucx" ? *carrier.link : control;
}
topo::Link& data(const Carrier& carrier, topo::Link& control) {
  return carrier.link ? *carrier.link : control;
}

/// Passes the token of one measurement to its two steps: Slurm forwards the environment, and no
/// other user can read it.
constexpr const char* kTokenVariable = "SWELL_CALIBRATE_TOKEN";

Result<std::string> own_token() {
  const char* token = std::getenv(kTokenVariable);
  if (token == nullptr || *token == '\0')
    return Error(
        fmt::format("{} is not set: this is a step of swell topo calibrate", kTokenVariable));
  return std::string(token);
}

Result<std::string> new_token() {
  unsigned char bytes[32];
  if (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes))
    return Error(fmt::format("no random bytes: {}", std::strerror(errno)));
  return fmt::format("{:02x}", fmt::join(bytes, bytes + sizeof bytes, ""));
}

int serve_one(const Options& options) {
  const auto token = own_token();
  if (!token) return fail(token.error());
  auto listener = topo::Listener::open(options.serve_at);
  if (!listener) return fail(listener.error());
  say("port {}\n", listener->port());
  std::fflush(stdout);
  auto control = listener->accept(*token);
  if (!control) return fail(control.error());
  auto made = carrier(options, **control, 0);
  if (!made) return fail(made.error());
  auto served = topo::serve(talk(*made, **control), data(*made, **control));
  return served ? 0 : fail(served.error());
}

int measure_one(const Options& options) {
  const std::size_t colon = options.connect_to.rfind(':');
  const std::string port = colon == std::string::npos ? "" : options.connect_to.substr(colon + 1);
  if (port.empty() || port.size() > 5 || port.find_first_not_of("0123456789") != port.npos)
    return fail(Error(fmt::format("--connect {}: give ADDRESS:PORT", options.connect_to)));
  const auto token = own_token();
  if (!token) return fail(token.error());
  auto control = topo::connect_tcp(options.connect_to.substr(0, colon), std::stoi(port), *token);
  if (!control) return fail(control.error());
  auto made = carrier(options, **control, 1);
  if (!made) return fail(made.error());
  auto sizes =
      topo::measure(talk(*made, **control), data(*made, **control), options.seconds, options.sizes);
  if (!sizes) return fail(sizes.error());
  cluster::Calibration one;
  one.method = made->method;
  one.classes.push_back(topo::summarize(0, {*sizes}));
  write_json_line(one.to_json());
  return 0;
}

// ---- the program that starts the steps

struct Node {
  std::string name, address;
};

struct Close {
  void operator()(std::FILE* pipe) const noexcept { pclose(pipe); }
};

std::string quoted(const std::string& word) {
  std::string result = "'";
  for (const char c : word) result += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return result + "'";
}

std::string own_program() {
  char path[4096];
  const ssize_t size = readlink("/proc/self/exe", path, sizeof(path));
  return size > 0 ? std::string(path, static_cast<std::size_t>(size)) : "swell";
}

/// Returns the shell command that runs this program on a node; on this host if `node` is empty.
std::string step(const Options& options, const std::string& node, const std::string& role) {
  const std::string run = fmt::format("{} topo calibrate --method {} --seconds {:g} --sizes {} {}",
                                      quoted(own_program()), options.method, options.seconds,
                                      fmt::join(options.sizes, ","), role);
  if (node.empty()) return run;
  // Without --gres a step may use all GPUs that the allocation has on its node.
  return fmt::format(
      "srun --quiet --export=ALL --overlap --mpi=none --cpu-bind=none -N1 -n1 -c1 -w {} {}",
      quoted(node), run);
}

std::string line_of(std::FILE* pipe) {
  std::string line;
  for (int c; (c = std::fgetc(pipe)) != EOF && c != '\n' && line.size() < (1 << 20);)
    line += static_cast<char>(c);
  return line;
}

struct Measured {
  std::string method;
  std::vector<cluster::MeasuredSize> sizes;
};

Result<Measured> measure_pair(const Options& options, const Node& server, const Node& client) {
  const auto token = new_token();
  if (!token) return token.error();
  setenv(kTokenVariable, token->c_str(), 1);
  const std::unique_ptr<std::FILE, Close> serving(
      popen(step(options, server.name, "--serve " + quoted(server.address)).c_str(), "r"));
  if (!serving) return Error("a process cannot be started");
  const std::string port = line_of(serving.get());
  if (!port.starts_with("port "))
    return Error(fmt::format("the step on {} did not start",
                             server.name.empty() ? "this host" : server.name));
  const std::string role = fmt::format("--connect {} --gpu {}",
                                       quoted(fmt::format("{}:{}", server.address, port.substr(5))),
                                       server.name == client.name ? 1 : 0);
  const std::unique_ptr<std::FILE, Close> measuring(
      popen(step(options, client.name, role).c_str(), "r"));
  if (!measuring) return Error("a process cannot be started");
  auto json = Json::parse(line_of(measuring.get()));
  auto read =
      json ? cluster::Calibration::from_json(*json) : Result<cluster::Calibration>(json.error());
  if (!read || read->classes.empty())
    return Error(fmt::format("the step on {} measured nothing; its reason is above",
                             client.name.empty() ? "this host" : client.name));
  return Measured{read->method, read->classes[0].sizes};
}

class Progress {
 public:
  explicit Progress(std::size_t steps)
      : steps_(std::max<std::size_t>(steps, 1)), shown_(isatty(STDERR_FILENO) != 0) {}
  ~Progress() {
    if (shown_) fmt::print(stderr, "\r{:70}\r", "");
  }
  void show(std::size_t done, const std::string& what) const {
    if (!shown_) return;
    const std::size_t filled = 30 * done / steps_;
    fmt::print(stderr, "\r[{:#<{}}{:.<{}}] {}/{} {:.30}   ", "", filled, "", 30 - filled, done,
               steps_, control::printable(what));
  }

 private:
  std::size_t steps_;
  bool shown_;
};

struct Pair {
  int distance;
  Node server, client;
};

/// Chooses at most `max` pairs of each distance, spread over the nodes: a node is used again only
/// if no other is left.
std::vector<Pair> choose(const std::vector<Node>& nodes, const cluster::Fabric& fabric, int max) {
  std::vector<Pair> chosen;
  std::map<int, int> count;
  std::map<int, std::vector<bool>> used;
  for (const bool again : {false, true})
    for (std::size_t gap = 0; gap < nodes.size(); ++gap)
      for (std::size_t a = 0; a + gap < nodes.size(); ++a) {
        const std::size_t b = a + gap;
        const int distance =
            a == b ? 0 : fabric.distance(fabric.find(nodes[a].name), fabric.find(nodes[b].name));
        std::vector<bool>& busy = used[distance];
        busy.resize(nodes.size());
        if (count[distance] >= max || (!again && (busy[a] || busy[b]))) continue;
        if (again && std::any_of(chosen.begin(), chosen.end(), [&](const Pair& p) {
              return p.server.name == nodes[a].name && p.client.name == nodes[b].name;
            }))
          continue;
        busy[a] = busy[b] = true;
        ++count[distance];
        chosen.push_back({distance, nodes[a], nodes[b]});
      }
  std::stable_sort(chosen.begin(), chosen.end(),
                   [](const Pair& a, const Pair& b) { return a.distance < b.distance; });
  return chosen;
}

Result<std::vector<Pair>> plan(const Options& options) {
  if (options.local)
    return std::vector<Pair>(static_cast<std::size_t>(options.pairs),
                             Pair{0, {"", "127.0.0.1"}, {"", "127.0.0.1"}});
  const char* list = getenv("SLURM_JOB_NODELIST");
  if (list == nullptr)
    return Error(
        "this is not an allocation of Slurm: run it in one, e.g. salloc -N4 swell topo calibrate, or give --local");
  auto names = slurm_text::expand_hostlist(list);
  if (!names) return names.error().while_doing("SLURM_JOB_NODELIST");
  auto site = load_fabric({});
  if (!site) return site.error();
  std::vector<Node> nodes;
  for (const std::string& name : *names) {
    const auto found = site->addresses.find(name);
    if (found == site->addresses.end()) return Error(fmt::format("Slurm has no node \"{}\"", name));
    nodes.push_back({name, found->second.empty() ? name : found->second});
  }
  return choose(nodes, site->fabric, options.pairs);
}

std::string now_utc() {
  const std::time_t now = std::time(nullptr);
  std::tm parts{};
  char text[32];
  gmtime_r(&now, &parts);
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

int calibrate(const Options& options) {
  auto pairs = plan(options);
  if (!pairs) return fail(pairs.error());
  cluster::Calibration made;
  made.date = now_utc();
  std::set<std::string> methods;
  std::map<int, std::vector<std::vector<cluster::MeasuredSize>>> measured;
  int failed = 0;
  {
    const Progress progress(pairs->size());
    for (std::size_t i = 0; i < pairs->size(); ++i) {
      const Pair& pair = (*pairs)[i];
      progress.show(i, pair.server.name + " - " + pair.client.name);
      auto one = measure_pair(options, pair.server, pair.client);
      if (!one) {
        ++failed;
        (void)fail(
            one.error().while_doing(fmt::format("{} - {}", pair.server.name, pair.client.name)));
        continue;
      }
      if (pair.distance > 0)
        made.pairs[std::minmax(pair.server.name, pair.client.name)] = topo::best_rate(one->sizes);
      methods.insert(one->method);
      measured[pair.distance].push_back(std::move(one->sizes));
    }
  }
  made.method = fmt::format("{}", fmt::join(methods, ", "));
  if (measured.empty()) return fail(Error("nothing could be measured; no file was written"));
  for (const auto& [distance, all] : measured)
    made.classes.push_back(topo::summarize(distance, all));
  if (auto written = write_file(options.output, pretty_text(made.to_json())); !written)
    return fail(written.error());
  for (const cluster::MeasuredClass& each : made.classes)
    say("distance {}: {:.3g} GB/s, spread {:.0f} %, latency {:.3g} us, {} pairs\n", each.distance,
        each.bytes_per_s / 1e9, 100 * each.spread, each.latency_s * 1e6, each.pairs);
  say("written to {}; to have it used, put it beside slurm.conf as swell_calibration.json\n",
      options.output);
  return failed == 0 ? 0 : 1;
}

}  // namespace

Action add_topo_calibrate(CLI::App& topo) {
  auto options = std::make_shared<Options>();
  CLI::App* command = topo.add_subcommand(
      "calibrate", "Measure bandwidth and latency between the nodes of an allocation");
  command->add_option("-o,--output", options->output, "The file to write")
      ->type_name("FILE")
      ->capture_default_str();
  command
      ->add_option("--pairs", options->pairs,
                   "At most so many pairs of nodes of each class of distance")
      ->check(CLI::Range(1, 1000))
      ->capture_default_str();
  command->add_option("--seconds", options->seconds, "For each size of message")
      ->check(CLI::Range(0.001, 60.0))
      ->capture_default_str();
  command->add_option("--sizes", options->sizes, "Sizes of messages, in bytes")
      ->type_name("N,N,...")
      ->delimiter(',')
      ->check(CLI::Range(1, topo::kMaxMessageBytes));
  command
      ->add_option("--method", options->method,
                   "How bytes travel; auto: the best that both ends can")
      ->check(CLI::IsMember({"auto", "nccl", "ucx", "tcp"}))
      ->capture_default_str();
  command->add_flag("--local", options->local, "Between two processes on this host, without Slurm");
  auto* serve = command->add_option("--serve", options->serve_at)->group("");
  command->add_option("--connect", options->connect_to)->group("")->excludes(serve);
  command->add_option("--gpu", options->gpu)->group("")->check(CLI::NonNegativeNumber);
  return [options] {
    if (!options->serve_at.empty()) return serve_one(*options);
    if (!options->connect_to.empty()) return measure_one(*options);
    return calibrate(*options);
  };
}

}  // namespace swell::tools
