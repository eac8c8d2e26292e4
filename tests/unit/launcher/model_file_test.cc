// SPDX-License-Identifier: GPL-2.0-or-later
#include "launcher/model_file.h"

#include <criterion/criterion.h>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/models/model.h"

using namespace swell;
using swell::launcher::read_model;

namespace {

struct Folder {
  Folder() {
    char name[] = "/tmp/swell-model-XXXXXX";
    path = mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string with(const std::string& text) const {
    std::ofstream(path + "/model.json") << text;
    return path + "/model.json";
  }
  std::string path;
};

models::Model good(const std::string& name, std::optional<int> batch = {}) {
  const auto json = read_model(name, batch);
  cr_assert(json.ok(), "%s", json.ok() ? "" : json.error().message().c_str());
  const auto model = models::model_from_json(*json);
  cr_assert(model.ok(), "what the controller reads is the same");
  return *model;
}

std::string refusal(const std::string& name, std::optional<int> batch = {}) {
  const auto json = read_model(name, batch);
  cr_assert_not(json.ok());
  return json.error().message();
}

}  // namespace

Test(model_file, is_a_file_or_a_name) {
  const Folder folder;
  const std::string file = folder.with(
      R"({"model_type": "llama", "num_hidden_layers": 4, "hidden_size": 256,
          "num_attention_heads": 8, "vocab_size": 1000, "max_position_embeddings": 512})");
  cr_assert_eq(good(file).layers, 4);
  cr_assert_eq(good(file, 32).global_batch, 32);
  std::filesystem::rename(file, folder.path + "/config.json");
  cr_assert_eq(good(folder.path).layers, 4, "a folder as transformers writes it");
  cr_assert_gt(good("GPT2-2.6B").layers, 0);
}

Test(model_file, errors_name_the_option_and_what_is_wrong) {
  const Folder folder;
  const std::string none = refusal("gpt-unheard-of");
  cr_assert(none.starts_with("--model=gpt-unheard-of: it is not a file, and "), "%s", none.c_str());
  const std::string file = folder.with(R"({"layers": 4})");
  cr_assert_neq(refusal(file).find("\"hidden\""), std::string::npos, "%s", refusal(file).c_str());
  cr_assert(refusal(file).starts_with("--model=" + file));
  cr_assert(refusal(folder.with("{")).starts_with("--model="));
  cr_assert_neq(refusal(folder.with(std::string(2 << 20, ' '))).find("at most"), std::string::npos);
  cr_assert(refusal(folder.path).starts_with("--model=" + folder.path));
  const std::string split = refusal(folder.with(
      R"({"name": "m", "layers": 4, "hidden": 64, "heads": 4, "sequence": 8, "global_batch": 4,
          "moe": {"experts": 8, "active": 2, "expert_ffn": 64}, "ep": 4})"));
  cr_assert(split.ends_with("model m: \"ep\" is 4; jobs run without CP and EP, which swell plan "
                            "alone knows: leave it out"),
            "%s", split.c_str());
  const std::string large = refusal("GPT2-2.6B", models::kMostBatch + 1);
  cr_assert_neq(large.find(" 16777217 samples a step; at most "), std::string::npos, "%s",
                large.c_str());
}
