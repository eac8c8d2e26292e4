// SPDX-License-Identifier: GPL-2.0-or-later
#include "control/frame.h"

#include <criterion/criterion.h>

using namespace swell;
using namespace swell::control;

namespace {

constexpr const char* nonce = "0123456789abcdef0123456789abcdef";

std::string reason(Seal& seal, const std::string& payload) {
  const Result<Message> message = seal.unwrap(payload);
  cr_assert_not(message.ok(), "accepted: %s", payload.c_str());
  return message.error().message();
}

std::string payload(const char* from, const char* sequence) {
  return std::string(R"({"conn":")") + nonce + R"(","from":")" + from + R"(","seq":)" + sequence +
         R"(,"m":{"type":"bye","exit_code":0}})";
}

}  // namespace

Test(frame, a_stream_is_cut_into_frames_wherever_its_pieces_end) {
  const std::string stream = framed("one") + framed("two");
  FrameReader reader(16);
  std::vector<std::string> frames;
  for (const char byte : stream) {
    reader.append({&byte, 1});
    const auto frame = reader.next();
    cr_assert(frame.ok());
    if (*frame) frames.push_back(**frame);
  }
  cr_assert_eq(frames.size(), 2u);
  cr_assert_eq(frames[1], "two");
}

Test(frame, an_empty_and_an_oversized_frame_are_errors_before_their_bytes_arrive) {
  for (const std::string& head :
       {std::string(4, '\0'), std::string("\0\0\0\x11", 4), std::string("\xff\xff\xff\xff", 4)}) {
    FrameReader reader(16);
    reader.append(head);
    cr_assert_not(reader.next().ok());
  }
}

Test(frame, only_a_server_greets) {
  const Result<std::string> own = new_nonce();
  cr_assert_eq(nonce_from(greeting(*own)).value(), *own);
  for (const char* text : {"", "SWELL1 ", "SWELL1 0123", "HTTP/1.1 400 Bad Request"})
    cr_assert_not(nonce_from(text).ok(), "%s", text);
}

Test(seal, takes_a_frame_once_and_in_order) {
  Seal server(Side::server, nonce);
  cr_assert(server.unwrap(payload("client", "2")).ok());
  cr_assert_neq(reason(server, payload("client", "2")).find("must rise"), std::string::npos);
  cr_assert_neq(reason(server, payload("client", "1")).find("must rise"), std::string::npos);
}

Test(seal, takes_frames_of_the_other_side_of_the_same_connection_alone) {
  Seal server(Side::server, nonce), elsewhere(Side::server, std::string(32, 'f'));
  for (const char* from : {"server", "cliejt", ""})
    cr_assert_eq(reason(server, payload(from, "1")), "the frame was not made by the other side");
  cr_assert_eq(reason(elsewhere, payload("client", "1")),
               "the frame was made for another connection");
  cr_assert(server.unwrap(payload("client", "1")).ok());
}
