// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/messages.h"

#include <algorithm>
#include <cmath>
#include <fmt/format.h>
#include <iterator>
#include <limits>
#include <type_traits>

#include "core/plan/plan.h"
#include "core/schedule/text.h"
#include "core/utf8.h"

namespace swell::control {

static_assert(plan::kMaxPlan == kMaxDocument);

namespace {

constexpr const char* kStateNames[] = {"ALLOCATED", "WARMING",  "READY",   "SWITCHING",
                                       "ACTIVE",    "DRAINING", "RELEASED"};
constexpr std::size_t kMaxItems = 4096;
constexpr std::size_t kMaxText = 4096;

// Each type has one describe(), which lists its members; a Writer or a Reader walks the list.

/// Returns at most `most` bytes of the text, in whole characters.
std::string cut(const std::string& text, std::size_t most) {
  std::string valid = valid_utf8(text);
  if (valid.size() <= most) return valid;
  while (most > 0 && (static_cast<unsigned char>(valid[most]) & 0xc0) == 0x80) --most;
  valid.resize(most);
  return valid;
}

/// Keeps numbers and texts within the bounds that a Reader accepts: a value from a program or a
/// node must not make the message that carries it unreadable.
class Writer {
 public:
  explicit Writer(const char* type) : json_(Json::object({{"type", type}})) {}
  Writer() : json_(Json::object()) {}
  void member(const char* key, const int& value, int min, int max) {
    json_.set(key, std::clamp(value, min, max));
  }
  void renamed(const char* key, const char* /*former*/, const int& value, int min, int max) {
    member(key, value, min, max);
  }
  void member(const char* key, const JobId& value) { json_.set(key, value); }
  void member(const char* key, const std::int64_t& value, std::int64_t min, std::int64_t max) {
    json_.set(key, std::clamp(value, min, max));
  }
  void member(const char* key, const double& value, double min, double max) {
    json_.set(key, std::isnan(value) ? min : std::clamp(value, min, max));
  }
  void member(const char* key, const std::string& value, std::size_t most = kMaxText) {
    json_.set(key, cut(value, most));
  }
  void optional(const char* key, const std::string& value, std::size_t most = kMaxText) {
    if (!value.empty()) member(key, value, most);
  }
  void member(const char* key, const std::vector<int>& value, int, int) {
    json_.set(key, array_of(value));
  }
  void optional(const char* key, const std::vector<int>& value, int min, int max) {
    if (!value.empty()) member(key, value, min, max);
  }
  template <typename T>
  requires std::is_arithmetic_v<T>
  void optional(const char* key, const T& value, T min, T max) {
    if (value != 0) member(key, value, min, max);
  }
  void document(const char* key, const Json& value) { json_.set(key, value); }
  void optional_document(const char* key, const Json& value) {
    if (is_object(value)) json_.set(key, value);
  }
  void optional(const char* key, const bool& value) {
    if (value) json_.set(key, value);
  }
  void member(const char* key, const JobState& value) { json_.set(key, to_text(value)); }
  void member(const char* key, const std::vector<JobId>& value) { json_.set(key, array_of(value)); }
  void member(const char* key, const std::vector<std::pair<std::string, std::string>>& value) {
    Json object = Json::object();
    for (const auto& [name, text] : value) object.set(name.c_str(), text);
    json_.set(key, object);
  }
  template <typename T>
  void members(const char* key, const std::vector<T>& value) {
    Json array = Json::array();
    for (T item : value) {
      Writer writer;
      describe(writer, item);
      array.append(writer.json_);
    }
    json_.set(key, array);
  }
  Json take() { return std::move(json_); }

 private:
  Json json_;
};

class Reader {
 public:
  explicit Reader(Json json) : json_(std::move(json)) {}
  void member(const char* key, int& value, int min, int max) {
    keep(value, json_.integer_at(key, min, max));
  }
  /// Agents of the previous version use the key `former`: jobs run on while Swell is upgraded.
  void renamed(const char* key, const char* former, int& value, int min, int max) {
    member(json_.has(key) ? key : former, value, min, max);
  }
  void member(const char* key, JobId& value) {
    keep(value, json_.integer_at(key, 0, std::numeric_limits<JobId>::max()));
  }
  void member(const char* key, std::int64_t& value, std::int64_t min, std::int64_t max) {
    keep(value, json_.integer_at(key, min, max));
  }
  void member(const char* key, double& value, double min, double max) {
    keep(value, json_.number_at(key, min, max));
  }
  void member(const char* key, std::string& value, std::size_t most = kMaxText) {
    Result<std::string> read = json_.string_at(key);
    if (read && read->size() > most)
      read = Error(
          fmt::format("\"{}\" has {} characters; at most {} are read", key, read->size(), most));
    keep(value, std::move(read));
  }
  template <typename T, typename... Bounds>
  void optional(const char* key, T& value, Bounds... bounds) {
    if (json_.has(key)) member(key, value, bounds...);
  }
  void member(const char* key, std::vector<int>& value, int min, int max) {
    const Json array = list(key);
    for (const Json& item : array.items()) {
      const json_int_t number = json_integer_value(item.get());
      if (!is_integer(item) || number < min || number > max ||
          (!value.empty() && number <= value.back()))
        return fail(Error(fmt::format("\"{}\" holds {}; it must hold rising numbers of {} to {}",
                                      key, item.dump(), min, max)));
      value.push_back(static_cast<int>(number));
    }
  }
  /// Reads a plan or a profile as it is; its user parses and checks the content.
  void document(const char* key, Json& value) {
    Json read = json_.at(key);
    if (!is_object(read)) return fail(Error(fmt::format("\"{}\" must be an object", key)));
    if (const std::size_t size = read.dump().size(); size > kMaxDocument)
      return fail(
          Error(fmt::format("\"{}\" has {} bytes; at most {} are read", key, size, kMaxDocument)));
    value = std::move(read);
  }
  void optional_document(const char* key, Json& value) {
    if (json_.has(key)) document(key, value);
  }
  void optional(const char* key, bool& value) {
    if (json_.has(key)) keep(value, json_.bool_at(key));
  }
  void member(const char* key, JobState& value) {
    Result<std::string> text = json_.string_at(key);
    if (!text) return fail(text.error());
    const std::optional<JobState> state = job_state_from(*text);
    if (!state)
      return fail(Error(fmt::format("\"{}\" is \"{}\", which is not a state", key, *text)));
    value = *state;
  }
  void member(const char* key, std::vector<JobId>& value) {
    const Json array = list(key);
    for (const Json& item : array.items()) {
      const json_int_t id = json_integer_value(item.get());
      if (!is_integer(item) || id < 1 || id > std::numeric_limits<JobId>::max())
        return fail(Error(
            fmt::format("\"{}\" holds {}; job ids are whole numbers above 0", key, item.dump())));
      value.push_back(static_cast<JobId>(id));
    }
  }
  void member(const char* key, std::vector<std::pair<std::string, std::string>>& value) {
    const Json object = json_.at(key);
    if (!is_object(object) || object.size() > kMaxItems)
      return fail(Error(fmt::format("\"{}\" must be an object of strings", key)));
    for (const auto& [name, text] : swell::members(object)) {
      if (!is_string(text))
        return fail(Error(fmt::format("\"{}\": \"{}\" must be a string", key, name)));
      value.emplace_back(name, json_string_value(text.get()));
    }
  }
  template <typename T>
  void members(const char* key, std::vector<T>& value) {
    for (const Json& item : list(key).items()) {
      Reader reader(item);
      describe(reader, value.emplace_back());
      if (reader.problem_) return fail(reader.problem_->while_doing(key));
    }
  }
  const std::optional<Error>& problem() const { return problem_; }

 private:
  Json list(const char* key) {
    Json array = json_.at(key);
    if (is_array(array) && array.size() <= kMaxItems) return array;
    fail(Error(fmt::format("\"{}\" must be a list of at most {} items", key, kMaxItems)));
    return Json::array();
  }
  template <typename T, typename U>
  void keep(T& value, Result<U> read) {
    if (read) value = static_cast<T>(std::move(*read));
    else fail(read.error());
  }
  void fail(Error error) {
    if (!problem_) problem_ = std::move(error);
  }
  Json json_;
  std::optional<Error> problem_;
};

constexpr int kMany = kMaxGpus, kMaxLast = 1000;
constexpr std::int64_t kMuch_mib = std::int64_t{1} << 40;
constexpr std::int64_t kMaxOrder = std::numeric_limits<std::int64_t>::max();

template <typename V>
void describe(V& v, Hello& m) {
  v.member("job", m.job);
  v.member("version", m.version, 0, kMany);
  v.member("host", m.host);
  v.member("workers", m.workers, 1, kMany);
  v.member("gpus_per_worker", m.gpus_per_worker, 1, kMany);
  v.member("companions", m.companions);
  v.optional("no_growth", m.no_growth);
  v.optional("sizes", m.sizes, 1, kMany);
  v.optional_document("model", m.model);
}
template <typename V>
void describe(V& v, OfferResult& m) {
  v.member("nonce", m.nonce);
  v.member("companion", m.companion);
  v.member("reason", m.reason);
}
template <typename V>
void describe(V& v, GrowDone& m) {
  v.members("results", m.results);
}
template <typename V>
void describe(V& v, Released& m) {
  v.member("companion", m.companion);
  v.member("reason", m.reason);
  v.optional("failed", m.failed);
  v.optional("started", m.started);
}
template <typename V>
void describe(V& v, Status& m) {
  v.member("state", m.state);
  v.renamed("generation", "epoch", m.generation, 0, kMany);
  v.member("workers", m.workers, 0, kMany);
  v.member("stopped_s", m.stopped_s, 0.0, 1e9);
  v.optional("no_growth", m.no_growth);
  v.optional("switched", m.switched);
  v.optional("sizes", m.sizes, 1, kMany);
  v.optional("plan_refused", m.plan_refused);
  v.optional("start_s", m.start_s, 0.0, 1e9);
  v.optional("lost_generation", m.lost_generation, 0, kMany);
  v.optional("lost_s", m.lost_s, 0.0, 1e9);
  v.optional("requeue_order", m.requeue_order, std::int64_t{0}, kMaxOrder);
  v.optional("has_left", m.has_left);
  v.optional("not_requeued", m.not_requeued);
  v.optional("steps", m.steps, std::int64_t{0}, kMostSteps);
  v.optional("total_steps", m.total_steps, std::int64_t{0}, kMostSteps);
}
template <typename V>
void describe(V& v, Profile& m) {
  v.renamed("generation", "epoch", m.generation, 0, kMany);
  v.member("companions", m.companions);
  v.member("step_s", m.step_s, 0.0, 1e9);
  v.document("profile", m.profile);
}
template <typename V>
void describe(V& v, Switched& m) {
  v.member("mode", m.mode);
  v.renamed("generation", "epoch", m.generation, 0, kMany);
  v.member("workers", m.workers, 0, kMany);
  v.member("stopped_s", m.stopped_s, 0.0, 1e9);
  v.optional_document("parts", m.parts);
}
template <typename V>
void describe(V& v, Bye& m) {
  v.member("exit_code", m.exit_code, 0, 255);
}
template <typename V>
void describe(V& v, Welcome& m) {
  v.member("version", m.version, 0, kMany);
  v.member("elastic", m.elastic);
}
template <typename V>
void describe(V& v, Refused& m) {
  v.member("reason", m.reason);
}
template <typename V>
void describe(V& v, Offer& m) {
  v.member("nonce", m.nonce);
  v.member("name", m.name);
  v.member("node", m.node);
  v.member("partition", m.partition);
  v.member("account", m.account);
  v.optional("qos", m.qos);
  v.member("gpu_type", m.gpu_type);
  v.member("gpus", m.gpus, 1, kMany);
  v.member("workers", m.workers, 1, kMany);
  v.member("cpus", m.cpus, 1, kMany);
  v.member("memory_mib", m.memory_mib, std::int64_t{0}, kMuch_mib);
  v.member("time_limit_min", m.time_limit_min, 0, std::numeric_limits<int>::max());
  v.member("warn_s", m.warn_s, 0, 65535);
}
template <typename V>
void describe(V& v, Grow& m) {
  v.members("offers", m.offers);
  v.member("expires_s", m.expires_s, 0, kMany);
  v.optional_document("plan", m.plan);
  v.optional("reason", m.reason);
  v.optional("devices_apart", m.devices_apart);
}
template <typename V>
void describe(V& v, Shrink& m) {
  v.member("companions", m.companions);
  v.member("deadline_s", m.deadline_s, 0, kMany);
  v.member("reason", m.reason);
  v.optional_document("plan", m.plan);
}
template <typename V>
void describe(V& v, Replan& m) {
  v.document("plan", m.plan);
  v.member("reason", m.reason);
}
template <typename V>
void describe(V& v, Requeue& m) {
  v.optional("order", m.order, std::int64_t{0}, kMaxOrder);
  v.member("wait_s", m.wait_s, 0, kMany);
  v.optional("called_off", m.called_off);
  v.member("reason", m.reason);
}
template <typename V>
void describe(V& v, Ask& m) {
  v.member("job", m.job);
  v.member("version", m.version, 0, kMany);
  v.member("what", m.what);
  v.member("number", m.number, 0, m.what == "history" ? std::numeric_limits<int>::max() : kMany);
  v.optional_document("plan", m.plan);
  v.optional("schedule", m.schedule, schedule::kMaxText);
  v.optional("last", m.last, 0, kMaxLast);
  v.optional("profiles", m.profiles);
}
template <typename V>
void describe(V& v, Answer& m) {
  v.member("text", m.text);
  v.optional_document("details", m.details);
}
template <typename V>
void describe(V& v, WorkerHello& m) {
  v.member("generation", m.generation, 0, kMany);
  v.member("group", m.group, 0, kMany);
  v.member("local_rank", m.local_rank, 0, kMany);
  v.member("host", m.host);
  v.member("port", m.port, 0, 65535);
  v.member("step", m.step);
  v.optional("build", m.build);
  v.optional("one_program", m.one_program);
  v.optional("misfit", m.misfit);
}
template <typename V>
void describe(V& v, WorkerNotice& m) {
  v.member("signal", m.signal, 0, 64);
}
template <typename V>
void describe(V& v, WorkerRuntime& m) {
  v.member("socket", m.socket);
  v.member("address", m.address);
  v.member("problem", m.problem);
}
template <typename V>
void describe(V& v, WorkerProfile& m) {
  v.member("generation", m.generation, 0, kMany);
  v.member("profile", m.profile);
}
template <typename V>
void describe(V& v, WorkerSizes& m) {
  v.member("workers", m.workers, 1, kMany);
  v.optional("why", m.why);
}
template <typename V>
void describe(V& v, WorkerLaunches& m) {
  v.member("generation", m.generation, 0, kMany);
  v.member("what", m.what);
  v.optional("no_rank", m.no_rank);
}
template <typename V>
void describe(V& v, WorkerSteps& m) {
  v.member("generation", m.generation, 0, kMany);
  v.member("steps", m.steps, std::int64_t{0}, kMostSteps);
  v.optional("age_s", m.age_s, 0.0, 1e9);
  v.optional("total", m.total, std::int64_t{0}, kMostSteps);
}
template <typename V>
void describe(V& v, WorkerExit& m) {
  v.member("generation", m.generation, 0, kMany);
  v.member("exit_code", m.exit_code, 0, 255);
  v.member("signal", m.signal, 0, 127);
}
template <typename V>
void describe(V& v, WorkerListens& m) {
  v.member("generation", m.generation, 0, kMany);
}
template <typename V>
void describe(V& v, WorkerStart& m) {
  v.member("generation", m.generation, 0, kMany);
  v.member("restart_signal", m.restart_signal, 0, 64);
  v.member("key", m.key);
  v.optional("ports", m.ports);
  v.member("environment", m.environment);
  v.optional("none_is_new", m.none_is_new);
}
template <typename V>
void describe(V& v, WorkerSignal& m) {
  v.member("generation", m.generation, -1, kMany);
  v.member("signal", m.signal, 1, 64);
}

/// Tries the variant's types in order until the name matches.
template <std::size_t I = 0>
Result<Message> read_as(const std::string& type, const Json& json) {
  if constexpr (I == std::variant_size_v<Message>) {
    return Error(fmt::format("unknown message type \"{}\"", type.substr(0, 60)));
  } else {
    using T = std::variant_alternative_t<I, Message>;
    if (type != T::type) return read_as<I + 1>(type, json);
    T message;
    Reader reader(json);
    describe(reader, message);
    if (reader.problem()) return reader.problem()->while_doing(fmt::format("message \"{}\"", type));
    return Message(std::move(message));
  }
}

}  // namespace

const char* to_text(JobState state) noexcept {
  return kStateNames[static_cast<std::size_t>(state)];
}

std::optional<JobState> job_state_from(const std::string& text) {
  for (std::size_t i = 0; i < std::size(kStateNames); ++i)
    if (text == kStateNames[i]) return static_cast<JobState>(i);
  return std::nullopt;
}

Json to_json(const Message& message) {
  return std::visit(
      []<typename T>(T copy) {
        Writer writer(T::type);
        describe(writer, copy);
        return writer.take();
      },
      message);
}

Result<Message> message_from(const Json& json) {
  if (!is_object(json)) return Error("a message must be a JSON object");
  const Result<std::string> type = json.string_at("type");
  if (!type) return type.error();
  return read_as(*type, json);
}

}  // namespace swell::control
