// SPDX-License-Identifier: GPL-2.0-or-later
// Any text as an AdminComment: the tag in it is written as it was read, what others wrote stays,
// and where it is taken out none is left, not even one that two halves make.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "control/tag.h"

namespace {

using namespace swell::control;

void check(bool holds) {
  if (!holds) std::abort();
}

void companions(std::string_view text) {
  const auto read = companions_from(text);
  const auto again = companions_from(companions_text(read));
  check(again.size() == read.size());
  for (std::size_t i = 0; i < read.size(); ++i)
    check(again[i].id == read[i].id && again[i].node == read[i].node &&
          again[i].gpus == read[i].gpus && read[i].gpus >= 0 &&
          again[i].gpu_indices == read[i].gpu_indices);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view comment(reinterpret_cast<const char*>(data), size);
  const std::string without = Tag::remove_from(comment);
  check(!Tag::find(without) && Tag::remove_from(without) == without &&
        without.size() <= comment.size());
  const Tag own{{"elastic", "max=4x"}, {"lent", "0"}};
  check(Tag::find(own.put_into(without))->text() == own.text());
  check(own.put_into(without).starts_with(without));
  companions(comment);
  const std::string word = as_word(comment);
  check(as_word(as_sentence(word)) == word && word.find_first_of(" ]'") == std::string::npos);

  const auto tag = Tag::find(comment);
  if (!tag) return 0;
  const auto again = Tag::find(tag->text());
  check(again && again->text() == tag->text());
  check(Tag::find(tag->put_into(comment))->text() == tag->text());
  check(Tag::find(own.put_into(comment))->text() == own.text());
  for (const char* key :
       {"elastic", "basic", "lent", "state", "companions", "parent", "grant", "grants"}) {
    check(again->get(key) == tag->get(key));
    if (const auto number = tag->number(key)) check(*number >= 0);
  }
  companions(tag->get("companions"));
  return 0;
}
