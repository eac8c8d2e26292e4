// SPDX-License-Identifier: GPL-2.0-or-later
#include <criterion/criterion.h>
#include <string>

#include "base/byte_message.h"
#include "core/error.h"
#include "runtime/wire/messages.h"

using namespace swell;
using namespace swell::runtime;

Test(refusal, keeps_its_code_over_the_wire) {
  for (const ErrorCode code :
       {ErrorCode::failed, ErrorCode::cancelled, ErrorCode::not_found, ErrorCode::not_asked}) {
    const Error read = read_refusal(write_refusal(Error(code, "disk full")));
    cr_assert_eq(read.code(), code);
    cr_assert_eq(read.message(), std::string("disk full"));
    cr_assert_not(read.shortage().has_value());
  }
}

Test(refusal, keeps_the_shortage_of_a_gpu) {
  const Error error = Error("no room", Shortage{40, 7}).while_doing("rank 3");
  cr_assert_eq(error.code(), ErrorCode::no_memory);
  const Error read = read_refusal(write_refusal(error));
  cr_assert_eq(read.code(), ErrorCode::no_memory);
  cr_assert_eq(read.message(), std::string("rank 3: no room"));
  cr_assert_eq(read.shortage().value().needed_bytes, 40u);
  cr_assert_eq(read.shortage().value().free_bytes, 7u);
}

Test(refusal, of_an_earlier_version_is_a_sentence_alone) {
  cr_assert_eq(read_refusal(ByteWriter().text("disk full").take()).code(), ErrorCode::failed);
  cr_assert_eq(read_refusal(ByteWriter().text("the switch was called off").take()).code(),
               ErrorCode::cancelled);
}

Test(refusal, with_bytes_that_mean_nothing_here_has_its_sentence) {
  const std::string sentence = ByteWriter().text("disk full").take();
  for (const std::string& rest : {std::string("\x09", 1), std::string("\xff", 1),
                                  std::string(5, '\0'), std::string(17, '\x02')}) {
    const Error read = read_refusal(sentence + rest);
    cr_assert_eq(read.code(), ErrorCode::failed, "%zu bytes more", rest.size());
    cr_assert_eq(read.message(), std::string("disk full"));
  }
}

Test(error, seen_from_one_level_up_has_the_same_code) {
  cr_assert_eq(called_off().while_doing("rank 2").code(), ErrorCode::cancelled);
  cr_assert_eq(called_off().while_doing("rank 2").message(),
               std::string("rank 2: the switch was called off"));
}
