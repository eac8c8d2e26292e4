// SPDX-License-Identifier: GPL-2.0-or-later
#include <cmath>
#include <criterion/criterion.h>
#include <string>

#include "core/models/catalogue.h"
#include "core/models/chain.h"

using namespace swell;
using namespace swell::models;

namespace {

double billions(const char* name) {
  Model model = find_model(name).value().model;
  model.mtp_heads = 0;  // names do not count them
  return model.parameters() / 1e9;
}

}  // namespace

Test(models, parameters_come_to_what_the_names_say) {
  const struct {
    const char* name;
    double billions;
  } known[] = {
      {"gpt2-350m", 0.355},  {"gpt2-1.3b", 1.31},  {"gpt2-2.6b", 2.65},   {"gpt2-6.7b", 6.65},
      {"gpt2-15b", 15.4},    {"gpt2-39b", 39.1},   {"gpt2-76b", 76.1},    {"gpt2-175b", 174.6},
      {"qwen2-0.5b", 0.494}, {"qwen2-1.5b", 1.54}, {"qwen2-7b", 7.62},    {"qwen2-72b", 72.7},
      {"llama2-7b", 6.74},   {"llama2-13b", 13.0}, {"llama-30b", 32.5},   {"llama-65b", 65.3},
      {"llama2-70b", 69.0},  {"bert-base", 0.110}, {"bert-large", 0.335}, {"bert-760m", 0.760},
      {"bert-1.3b", 1.31},   {"bert-2.6b", 2.65},  {"bert-6.7b", 6.65},   {"moe-1.3b", 1.3},
      {"moe-2.4b", 2.4},     {"moe-10b", 10.0},    {"moe-27b", 27.0}};
  for (const auto& one : known)
    cr_assert(std::abs(billions(one.name) / one.billions - 1) < 0.07, "%s: %g", one.name,
              billions(one.name));
  cr_assert(std::abs(billions("flextrain-small") / 7 - 1) < 0.15, "%g",
            billions("flextrain-small"));
  cr_assert(std::abs(billions("flextrain-medium") / 60 - 1) < 0.15, "%g",
            billions("flextrain-medium"));
  cr_assert(std::abs(billions("flextrain-large") / 600 - 1) < 0.15, "%g",
            billions("flextrain-large"));
}

Test(models, every_entry_is_sound_and_round_trips) {
  for (const CatalogueEntry& entry : catalogue()) {
    cr_assert(check(entry.model).ok(), "%s", entry.model.name.c_str());
    const auto read = model_from_json(to_json(entry.model));
    cr_assert(read.ok() && *read == entry.model, "%s", entry.model.name.c_str());
    cr_assert_eq(entry.model.heads % entry.tp, 0);
  }
}

Test(models, forward_operations_by_hand) {
  // hidden 4, ffn 16, GPT: 4*16 + 2*4*16 + norms 16 = 208 parameters; 2 * 208 * 8 tokens + 4 * 64
  // * 4.
  const Model tiny{"tiny", 1, 4, 2, 2, 16, false, true, 10, 8, 1, {}};
  cr_assert_eq(tiny.layer_parameters(), 208);
  cr_assert_eq(tiny.layer_forward_flop(), 2 * 208 * 8 + 4 * 64 * 4);
  cr_assert_eq(tiny.head_forward_flop(), 2 * 40 * 8);
}

Test(models, heads_wider_than_their_share_of_the_hidden_state_count) {
  // Qwen3-0.6B: 16 heads of 128 over a hidden width of 1024; 596.0 million parameters.
  const auto qwen3 = model_from_json(
      *Json::parse(R"({"model_type":"qwen3","hidden_size":1024,"intermediate_size":3072,
    "num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,"vocab_size":151936,"hidden_act":"silu",
    "head_dim":128,"tie_word_embeddings":true,"max_position_embeddings":512})"));
  cr_assert(qwen3.ok());
  cr_assert(std::abs(qwen3->parameters() / 596.05e6 - 1) < 0.001, "%g", qwen3->parameters());
  cr_assert_eq(model_from_json(to_json(*qwen3)).value(), *qwen3);
}

Test(models, the_rotary_part_of_a_head_is_not_its_width) {
  // transformers writes DeepSeek-V3's "head_dim" so, though its heads are 192 wide.
  const std::string config =
      R"({"model_type":"deepseek_v3","hidden_size":7168,"intermediate_size":18432,"num_hidden_layers":4,
    "num_attention_heads":128,"vocab_size":1000,"hidden_act":"silu","max_position_embeddings":512)";
  const auto plain = model_from_json(*Json::parse(config + "}"));
  const auto with =
      model_from_json(*Json::parse(config + R"(,"head_dim":64,"qk_rope_head_dim":64})"));
  cr_assert(plain.ok() && with.ok());
  cr_assert_eq(*with, *plain);
}

Test(models, learned_positions_count_as_parameters) {
  // OPT-125m: 125.24 million parameters, of which 2050 * 768 are positions.
  const auto opt = model_from_json(
      *Json::parse(R"({"model_type":"opt","hidden_size":768,"ffn_dim":3072,"num_hidden_layers":12,
    "num_attention_heads":12,"vocab_size":50272,"activation_function":"relu","max_position_embeddings":2048})"));
  cr_assert(opt.ok());
  cr_assert(opt->tied_embedding);
  cr_assert(std::abs(opt->parameters() / 125.24e6 - 1) < 0.001, "%g", opt->parameters());
  cr_assert_eq(model_from_json(to_json(*opt)).value(), *opt);
}

Test(models, configs_agree_with_graphs_exported_from_them) {
  // Totals that `python -m swell.graph --sequence 512` wrote for each config.json.
  const struct {
    const char* config;
    double parameters, forward_flop;
  } exported[] = {
      {R"({"model_type":"gpt2","n_embd":768,"n_layer":12,"n_head":12,"vocab_size":50257,"activation_function":"gelu_new","n_positions":1024,"tie_word_embeddings":true,"sequence":512})",
       124439808.0, 136160477184.0},
      {R"({"model_type":"llama","hidden_size":2048,"intermediate_size":5632,"num_hidden_layers":6,"num_attention_heads":32,"num_key_value_heads":4,"head_dim":64,"vocab_size":32000,"hidden_act":"silu","max_position_embeddings":2048,"tie_word_embeddings":false,"sequence":512})",
       395339776.0, 350576705536.0},
      {R"({"model_type":"opt","hidden_size":768,"ffn_dim":3072,"num_hidden_layers":12,"num_attention_heads":12,"vocab_size":50272,"activation_function":"relu","max_position_embeddings":2048,"tie_word_embeddings":true,"sequence":512})",
       125239296.0, 136172273664.0},
      {R"({"model_type":"bert","hidden_size":768,"intermediate_size":3072,"num_hidden_layers":12,"num_attention_heads":12,"vocab_size":30522,"hidden_act":"gelu","max_position_embeddings":512,"tie_word_embeddings":true,"sequence":512})",
       109514298.0, 121244221440.0},
      {R"({"model_type":"qwen3","hidden_size":1024,"intermediate_size":3072,"num_hidden_layers":28,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":128,"vocab_size":151936,"hidden_act":"silu","max_position_embeddings":32768,"tie_word_embeddings":true,"sequence":512})",
       596049920.0, 670417551360.0},
      {R"({"model_type":"qwen3_moe","hidden_size":1024,"intermediate_size":3072,"num_hidden_layers":4,"num_attention_heads":16,"num_key_value_heads":8,"head_dim":64,"vocab_size":151936,"hidden_act":"silu","max_position_embeddings":32768,"tie_word_embeddings":false,"num_local_experts":16,"num_experts_per_tok":4,"moe_intermediate_size":512,"sequence":512})",
       424486400.0, 202333224960.0},
  };
  for (const auto& one : exported) {
    const auto model = model_from_json(*Json::parse(one.config));
    cr_assert(model.ok(), "%s", one.config);
    const double flop = model->layers * model->layer_forward_flop() + model->head_forward_flop();
    cr_assert(std::abs(model->parameters() / one.parameters - 1) < 0.01, "%s: %g parameters",
              one.config, model->parameters());
    cr_assert(std::abs(flop / one.forward_flop - 1) < 0.01, "%s: %g operations", one.config, flop);
  }
}

Test(models, graphs_are_refused_where_a_shape_is_needed) {
  const auto graph =
      model_from_json(*Json::parse(R"({"swell_graph":1,"name":"m","operators":[]})"));
  cr_assert(!graph.ok());
  cr_assert(graph.error().message().find("swell plan --model") != std::string::npos, "%s",
            graph.error().message().c_str());
}

Test(models, reads_huggingface_configs) {
  const auto llama = model_from_json(
      *Json::parse(R"({"model_type":"llama","hidden_size":4096,"intermediate_size":11008,
    "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000,"hidden_act":"silu",
    "max_position_embeddings":4096,"tie_word_embeddings":false})"));
  cr_assert(llama.ok());
  cr_assert(llama->gated_mlp && llama->kv_heads == 8 && llama->sequence == 4096 &&
            !llama->tied_embedding);
  const auto gpt2 =
      model_from_json(*Json::parse(R"({"model_type":"gpt2","n_embd":768,"n_layer":12,"n_head":12,
    "vocab_size":50257,"n_positions":1024,"n_inner":null,"activation_function":"gelu_new","global_batch":64})"));
  cr_assert(gpt2.ok());
  cr_assert(gpt2->ffn == 3072 && !gpt2->gated_mlp && gpt2->tied_embedding &&
            gpt2->global_batch == 64);
  const auto mixtral = model_from_json(
      *Json::parse(R"({"model_type":"mixtral","hidden_size":4096,"intermediate_size":14336,
    "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":8,"vocab_size":32000,"hidden_act":"silu",
    "num_local_experts":8,"num_experts_per_tok":2,"tie_word_embeddings":false})"));
  cr_assert(mixtral.ok());
  cr_assert(std::abs(mixtral->parameters() / 46.7e9 - 1) < 0.01);
}

Test(models, no_experts_is_a_dense_model) {  // found by tests/fuzz/model_json
  const auto read = model_from_json(
      *Json::parse(R"({"layers":2,"hidden":8,"heads":4,"sequence":4,"global_batch":1,
    "moe":{"experts":0,"active":2,"expert_ffn":4}})"));
  cr_assert(read.ok() && read->moe == Moe{});
}

Test(models, errors_name_the_model_the_key_and_the_rule) {
  const auto missing = model_from_json(*Json::parse(R"({"name":"m","layers":2,"hidden":8})"));
  cr_assert_eq(missing.error().message(),
               "model m: \"heads\" is missing; it must be a whole number from 0 to 67108864");
  const auto odd = model_from_json(*Json::parse(
      R"({"name":"m","layers":2,"hidden":8,"heads":3,"sequence":4,"global_batch":1})"));
  cr_assert_eq(odd.error().message(), "model m: 3 heads do not divide the hidden width 8");
  cr_assert_not(find_model("gpt5").ok());
}

namespace {

/// A model of 8 experts and 12 tokens, with one more member.
Result<Model> read_with(const char* member) {
  return model_from_json(*Json::parse(
      std::string(R"({"name":"m","layers":2,"hidden":8,"heads":4,"sequence":12,"global_batch":4,
      "moe":{"experts":8,"active":2,"expert_ffn":16})") +
      member + "}"));
}

std::string why_not(const char* member) {
  const auto read = read_with(member);
  return read ? "" : read.error().message();
}

}  // namespace

Test(models, cp_and_ep_round_trip_and_models_without_them_are_written_as_before) {
  const auto plain = read_with(""), both = read_with(R"(,"cp":3,"ep":4)");
  cr_assert(plain.ok() && both.ok());
  cr_assert(plain->cp == 1 && plain->ep == 1 && both->cp == 3 && both->ep == 4);
  cr_assert_eq(model_from_json(to_json(*both)).value(), *both);
  cr_assert_eq(
      to_json(*plain).dump(),
      R"({"name":"m","layers":2,"hidden":8,"heads":4,"kv_heads":4,"ffn":32,"gated_mlp":false,"tied_embedding":false,)"
      R"("vocab":51200,"sequence":12,"global_batch":4,"moe":{"experts":8,"active":2,"shared":0,"expert_ffn":16}})");
  cr_assert_eq(read_with(R"(,"cp":1,"ep":1)").value(), *plain);
}

Test(models, cp_divides_the_tokens_and_ep_the_experts) {
  cr_assert_eq(why_not(R"(,"cp":0)"), "model m: \"cp\" is 0; it must be from 1 to 64");
  cr_assert_eq(why_not(R"(,"cp":72)"), "model m: \"cp\" is 72; it must be from 1 to 64");
  cr_assert_eq(why_not(R"(,"ep":0)"), "model m: \"ep\" is 0; it must be from 1 to 4096");
  cr_assert_eq(why_not(R"(,"ep":8192)"), "model m: \"ep\" is 8192; it must be from 1 to 4096");
  cr_assert_eq(
      why_not(R"(,"cp":5)"),
      "model m: \"cp\" 5 does not divide the 12 tokens of a sample; give a degree that does");
  cr_assert_eq(
      why_not(R"(,"ep":3)"),
      "model m: \"ep\" 3 does not divide the 8 experts of a layer; give a degree that does");
  cr_assert_neq(why_not(R"(,"ep":-1)").find("\"ep\""), std::string::npos);
  const auto dense = model_from_json(*Json::parse(
      R"({"name":"m","layers":2,"hidden":8,"heads":4,"sequence":4,"global_batch":1,"ep":2})"));
  cr_assert_eq(
      dense.error().message(),
      "model m: \"ep\" is 2, and its layers have no experts; leave it out, or say \"moe\"");
}

Test(models, a_rank_of_an_ep_group_holds_its_part_of_the_experts) {
  const auto whole = read_with("").value(), part = read_with(R"(,"ep":4)").value();
  cr_assert_eq(whole.held_layer_parameters(), whole.layer_parameters());
  cr_assert_eq(part.layer_parameters(), whole.layer_parameters());
  // 6 of 8 experts of two matrices, 8 x 16, are elsewhere.
  cr_assert_eq(part.held_layer_parameters(), whole.layer_parameters() - 6 * 2 * 8 * 16);
}

Test(models, reads_the_text_part_of_a_multimodal_config) {
  const auto read = [](const char* text) { return model_from_json(*Json::parse(text)); };
  const auto model = read(
      R"({"model_type":"gemma3","architectures":["Gemma3"],"vision_config":{"hidden_size":1152},
      "text_config":{"hidden_size":2560,"num_hidden_layers":34,"num_attention_heads":8,
      "intermediate_size":10240,"vocab_size":262208}})");
  cr_assert(model.ok(), "%s", model.ok() ? "" : model.error().message().c_str());
  cr_assert_eq(model->layers, 34);
  cr_assert_eq(model->hidden, 2560);
  const auto beside = read(
      R"({"vocab_size":1000,"text_config":{"hidden_size":64,"num_hidden_layers":2,"num_attention_heads":8}})");
  cr_assert_eq(beside->vocab, 1000);
}

Test(models, an_error_names_the_files_own_key) {
  const auto said = [](const char* text) {
    return model_from_json(*Json::parse(text)).error().message();
  };
  cr_assert_neq(said(R"({"hidden_size":64,"num_attention_heads":8})")
                    .find("\"num_hidden_layers\" is missing"),
                std::string::npos);
  cr_assert_neq(
      said(R"({"model_type":"llama","num_hidden_layers":3})").find("\"hidden_size\" is missing"),
      std::string::npos);
  cr_assert_neq(
      said(R"({"text_config":{"hidden_size":64}})").find("\"num_hidden_layers\" is missing"),
      std::string::npos);
  cr_assert_neq(said(R"({"hidden":64})").find("\"layers\" is missing"), std::string::npos);
  cr_assert_neq(said(R"({"n_embd":768,"n_head":12})").find("\"n_layer\" is missing"),
                std::string::npos);
  const std::pair<const char*, const char*> none[] = {
      {R"({"n_layer":0,"n_embd":768,"n_head":12,"vocab_size":9})", "\"n_layer\" is 0"},
      {R"({"n_layer":2,"n_embd":768,"n_head":12,"vocab_size":0})", "\"vocab_size\" is 0"},
      {R"({"num_hidden_layers":2,"hidden_size":8,"num_attention_heads":2,"vocab_size":9,
          "intermediate_size":0})",
       "\"intermediate_size\" is 0"},
      {R"({"num_hidden_layers":2,"hidden_size":8,"num_attention_heads":2,"vocab_size":9,
          "num_key_value_heads":0})",
       "\"num_key_value_heads\" is 0"},
      {R"({"num_hidden_layers":2,"hidden_size":12,"num_attention_heads":6,"vocab_size":9,
          "num_key_value_heads":5})",
       "\"num_key_value_heads\" is 5; it must divide \"num_attention_heads\", which is 6"},
      {R"({"n_layer":2,"n_embd":768,"n_head":10,"vocab_size":9})",
       "\"n_head\" is 10; it must divide \"n_embd\", which is 768"}};
  for (const auto& [config, words] : none)
    cr_assert_neq(said(config).find(words), std::string::npos, "%s: %s", config,
                  said(config).c_str());
}

namespace {

Model tiny_with(int mtp_heads, bool tied = false) {
  Model tiny{"tiny", 3, 4, 2, 2, 16, false, tied, 10, 8, 1, {}};
  tiny.mtp_heads = mtp_heads;
  return tiny;
}

}  // namespace

Test(chain, a_model_is_its_units_in_order_and_heads_are_leaves) {
  const Chain chain = chain_of(tiny_with(2));
  const UnitKind kinds[] = {UnitKind::embedding, UnitKind::layer,      UnitKind::layer,
                            UnitKind::layer,     UnitKind::head,       UnitKind::mtp_module,
                            UnitKind::mtp_head,  UnitKind::mtp_module, UnitKind::mtp_head};
  const int reads[] = {-1, 0, 1, 2, 3, 3, 5, 5, 7};
  cr_assert_eq(chain.units(), 9);
  for (int unit = 0; unit < chain.units(); ++unit) {
    cr_assert_eq(chain.at(unit).kind, kinds[unit], "unit %d", unit);
    cr_assert_eq(chain.at(unit).reads, reads[unit], "unit %d", unit);
    cr_assert_eq(chain.at(unit).boundary_bytes, unit == 8 ? 0 : 2 * 8 * 4, "unit %d", unit);
  }
}

Test(chain, loads_of_all_runs_are_the_sum_of_their_units) {
  for (const int heads : {0, 1, 3}) {
    const Chain chain = chain_of(tiny_with(heads));
    for (int first = 0; first <= chain.units(); ++first) {
      Load sum;
      for (int end = first; end <= chain.units(); ++end) {
        cr_assert(chain.load(first, end) == sum, "%d heads, units %d to %d", heads, first, end);
        if (end == chain.units()) break;
        const UnitKind kind = chain.kind_at(end);
        ++(kind == UnitKind::embedding    ? sum.embeddings
           : kind == UnitKind::layer      ? sum.layers
           : kind == UnitKind::mtp_module ? sum.modules
                                          : sum.heads);
      }
    }
  }
}

Test(chain, parameters_count_shared_matrices_once) {
  const Chain chain = chain_of(tiny_with(2));
  const double layer = tiny_with(0).layer_parameters(), matrix = 40, norm = 8;
  const double module = layer + 2 * 4 * 4 + 4 * 4;
  cr_assert_eq(chain.parameters(chain.load(0, 9)), 3 * layer + 2 * module + 3 * norm + 2 * matrix);
  // A stage of the last MTP head alone needs both matrices, or the one that is both.
  cr_assert_eq(chain.parameters(chain.load(7, 9)), module + norm + 2 * matrix);
  cr_assert_eq(chain_of(tiny_with(2, true)).parameters(chain.load(7, 9)), module + norm + matrix);
}

Test(models, mtp_heads_round_trip_and_have_bounds) {
  for (const char* name : {"flextrain-small", "flextrain-medium", "flextrain-large"})
    cr_assert_eq(find_model(name)->model.mtp_heads, 2);
  Json json = to_json(tiny_with(2));
  cr_assert_eq(model_from_json(json)->mtp_heads, 2);
  json.set("mtp_heads", 17);
  cr_assert_eq(model_from_json(json).error().message(),
               "model tiny: \"mtp_heads\" is 17; it must be from 0 to 16");
  cr_assert(!to_json(tiny_with(0)).has("mtp_heads"));
  // HuggingFace's own count is not trained there; ours beside it is.
  const char* config = R"({"model_type":"deepseek_v3","hidden_size":64,"num_hidden_layers":2,
    "num_attention_heads":4,"vocab_size":100,"num_nextn_predict_layers":1%s})";
  std::string with = config, without = config;
  without.replace(without.find("%s"), 2, "");
  with.replace(with.find("%s"), 2, ",\"mtp_heads\":3");
  cr_assert_eq(model_from_json(*Json::parse(without))->mtp_heads, 0);
  cr_assert_eq(model_from_json(*Json::parse(with))->mtp_heads, 3);
}
