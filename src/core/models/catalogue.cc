// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/models/catalogue.h"

#include <algorithm>
#include <cctype>
#include <fmt/format.h>

namespace swell::models {

namespace {

struct Degrees {
  int pp, dp, tp;
};

/// Returns a GPT-2 or GPT-3: two MLP matrices of four times the hidden width, the same vocabulary.
CatalogueEntry gpt(const char* source, const char* name, int layers, int hidden, int heads,
                   int sequence, int batch, Degrees degrees) {
  return {{name, layers, hidden, heads, heads, 4 * hidden, false, true, 51200, sequence, batch, {}},
          source,
          degrees.pp,
          degrees.dp,
          degrees.tp,
          16};
}

/// Returns a BERT: an encoder of GPT's shape with the published vocabulary and learned positions.
CatalogueEntry bert(const char* name, int layers, int hidden, int heads) {
  CatalogueEntry entry =
      gpt("Devlin et al., 2019", name, layers, hidden, heads, 512, 256, {1, 1, 1});
  entry.model.vocab = 30522;
  entry.model.positions = 512;
  return entry;
}

CatalogueEntry gated(const char* name, int layers, int hidden, int heads, int kv_heads, int ffn,
                     int vocab, int sequence, int batch, bool tied, Degrees degrees) {
  return {{name, layers, hidden, heads, kv_heads, ffn, true, tied, vocab, sequence, batch, {}},
          "Suika, Table 1",
          degrees.pp,
          degrees.dp,
          degrees.tp,
          16};
}

/// Returns a GShard model: every MLP is a set of experts, and a token visits two of them.
CatalogueEntry gshard(const char* name, int layers, int hidden, int experts) {
  return {{name,
           layers,
           hidden,
           16,
           16,
           4 * hidden,
           false,
           true,
           32000,
           1024,
           512,
           {experts, 2, 0, 4 * hidden}},
          "Arena, Table 2",
          1,
          4,
          1,
          16};
}

CatalogueEntry flextrain(const char* name, int layers, int hidden, int heads, int sequence,
                         int batch, Moe moe, Degrees degrees) {
  return {{name, layers, hidden, heads, heads, 4 * hidden, true, false, 129280, sequence, batch,
           moe, 2},
          "FlexTrain, Table 2",
          degrees.pp,
          degrees.dp,
          degrees.tp,
          16};
}

std::vector<CatalogueEntry> build() {
  const char* suika = "Suika, Table 1";
  const char* arena = "Arena, Table 2";
  return {
      gpt(suika, "gpt2-350m", 24, 1024, 16, 1024, 256, {1, 1, 1}),
      gpt(suika, "gpt2-1.3b", 24, 2048, 16, 1024, 256, {1, 4, 1}),
      gpt(suika, "gpt2-2.6b", 32, 2560, 32, 1024, 256, {1, 4, 1}),
      gpt(suika, "gpt2-6.7b", 32, 4096, 32, 1024, 256, {1, 4, 2}),
      gpt(suika, "gpt2-15b", 48, 5120, 40, 1024, 256, {1, 4, 4}),
      gpt(suika, "gpt2-39b", 48, 8192, 64, 2048, 256, {2, 4, 4}),
      gpt(suika, "gpt2-76b", 60, 10240, 80, 2048, 256, {2, 4, 8}),
      gpt(suika, "gpt2-175b", 96, 12288, 96, 2048, 512, {4, 8, 8}),
      gated("qwen2-0.5b", 24, 896, 14, 2, 4864, 151936, 2048, 256, true, {1, 1, 1}),
      gated("qwen2-1.5b", 28, 1536, 12, 2, 8960, 151936, 2048, 256, true, {1, 4, 1}),
      gated("qwen2-7b", 28, 3584, 28, 4, 18944, 152064, 2048, 256, false, {1, 4, 2}),
      gated("qwen2-72b", 80, 8192, 64, 8, 29568, 152064, 2048, 256, false, {2, 4, 8}),
      gated("llama2-7b", 32, 4096, 32, 32, 11008, 32000, 2048, 256, false, {1, 4, 2}),
      gated("llama2-13b", 40, 5120, 40, 40, 13824, 32000, 2048, 256, false, {1, 4, 4}),
      gated("llama-30b", 60, 6656, 52, 52, 17920, 32000, 2048, 256, false, {2, 4, 4}),
      gated("llama-65b", 80, 8192, 64, 64, 22016, 32000, 2048, 256, false, {2, 4, 8}),
      gated("llama2-70b", 80, 8192, 64, 8, 28672, 32000, 2048, 512, false, {3, 8, 8}),
      gpt(arena, "gpt3-760m", 24, 1536, 16, 1024, 256, {1, 4, 1}),
      gpt(arena, "gpt3-1.3b", 24, 2048, 32, 1024, 256, {1, 4, 1}),
      gpt(arena, "gpt3-2.6b", 32, 2560, 32, 1024, 256, {1, 4, 1}),
      gpt(arena, "gpt3-6.7b", 32, 4096, 32, 1024, 256, {1, 4, 2}),
      bert("bert-base", 12, 768, 12),
      bert("bert-large", 24, 1024, 16),
      gpt("Arena, measured rows", "bert-760m", 24, 1536, 16, 1024, 128, {1, 4, 1}),
      gpt("Arena, measured rows", "bert-1.3b", 24, 2048, 32, 1024, 128, {1, 4, 1}),
      gpt("Arena, measured rows", "bert-2.6b", 32, 2560, 32, 1024, 128, {1, 4, 1}),
      gpt("Arena, measured rows", "bert-6.7b", 32, 4096, 32, 1024, 128, {1, 4, 2}),
      gshard("moe-690m", 8, 768, 16),
      gshard("moe-1.3b", 16, 768, 16),
      gshard("moe-2.4b", 16, 1024, 16),
      gshard("moe-10b", 16, 1536, 32),
      gshard("moe-27b", 16, 2048, 48),
      flextrain("flextrain-small", 15, 2048, 16, 8192, 1024, {64, 6, 2, 1024}, {4, 1, 8}),
      flextrain("flextrain-medium", 29, 4096, 32, 32768, 256, {96, 6, 1, 1536}, {4, 2, 8}),
      flextrain("flextrain-large", 61, 7168, 56, 8192, 768, {256, 8, 1, 1792}, {8, 4, 8}),
  };
}

}  // namespace

const std::vector<CatalogueEntry>& catalogue() {
  static const std::vector<CatalogueEntry> entries = build();
  return entries;
}

Result<CatalogueEntry> find_model(std::string_view name) {
  auto same = [](char a, char b) { return std::tolower(static_cast<unsigned char>(a)) == b; };
  std::string names;
  for (const CatalogueEntry& entry : catalogue()) {
    if (std::equal(name.begin(), name.end(), entry.model.name.begin(), entry.model.name.end(),
                   same))
      return entry;
    names += (names.empty() ? "" : ", ") + entry.model.name;
  }
  return Error(fmt::format("there is no model \"{}\" in the catalogue; it has {}", name, names));
}

}  // namespace swell::models
