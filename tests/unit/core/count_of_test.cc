// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/count_of.h"

#include <criterion/criterion.h>
#include <cstddef>

namespace swell {

Test(count_of, has_the_singular_for_one_alone) {
  cr_assert_eq(count_of(1, "GPU"), std::string("1 GPU"));
  cr_assert_eq(count_of(1.0, "worker"), std::string("1 worker"));
  cr_assert_eq(count_of(0, "GPU"), std::string("0 GPUs"));
  cr_assert_eq(count_of(std::size_t{2}, "worker"), std::string("2 workers"));
  cr_assert_eq(count_of(-1, "layer"), std::string("-1 layers"));
}

Test(count_of, ends_words_that_hiss_in_es) {
  cr_assert_eq(count_of(2, "pass"), std::string("2 passes"));
  cr_assert_eq(count_of(2, "micro-batch"), std::string("2 micro-batches"));
  cr_assert_eq(count_of(1, "switch"), std::string("1 switch"));
}

}  // namespace swell
