// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/cluster/node_description.h"

#include <criterion/criterion.h>
#include <random>

#include "support/fabrics.h"

using namespace swell;
using namespace swell::cluster;

namespace {

std::string bad(const std::string& json) {
  const auto read = read_extra("{\"swell\":" + json + "}");
  cr_assert_not(read.ok(), "%s", json.c_str());
  return read.error().message();
}

}  // namespace

Test(node_description, a_dgx_round_trips_in_a_few_hundred_bytes) {
  const NodeDescription made = test::dgx("ib-leaf-17");
  const std::string text = write_extra("", made).value();
  cr_assert_lt(text.size(), 800u, "%zu bytes: %s", text.size(), text.c_str());
  cr_assert(text.starts_with("{\"swell\":{\"v\":1,"), "%s", text.c_str());
  const auto read = read_extra(text);
  cr_assert(read.ok());
  cr_assert(read->has_value());
  cr_assert(**read == made, "%s", (*read)->to_json().dump().c_str());
}

Test(node_description, pairs_that_differ_round_trip) {
  NodeDescription made;
  made.gpus = {{"a40", "0000:01:00.0", 0}, {"l20", "0000:02:00.0", 0}, {"", "", -1}};
  made.usual_link = {0, 0, LinkKind::pcie, 16.5e9};
  made.links = {{0, 1, LinkKind::nvlink, 56e9}};
  made.ports = {{"eth0", 0, LinkLayer::ethernet, 1.25e9, 0, 0, "", -1, {}}};
  const NodeDescription read = NodeDescription::from_json(made.to_json()).value();
  cr_assert(read == made, "%s", read.to_json().dump().c_str());
  cr_assert_eq(read.link(1, 0).bytes_per_s, 56e9);
  cr_assert_eq(read.link(1, 2).kind, LinkKind::pcie);
}

Test(node_description, a_node_with_nothing_is_valid) {
  cr_assert_eq(NodeDescription{}.to_json().dump(), "{\"v\":1}");
  cr_assert(NodeDescription::from_json(*Json::parse("{\"v\":1}")).ok());
}

Test(node_description, other_tools_keys_stay) {
  const std::string text =
      write_extra(R"({"rack":{"row":7},"swell":{"v":1,"leaf":"old"}})", test::dgx("new")).value();
  const Json json = *Json::parse(text);
  cr_assert_eq(json.at("rack").dump(), std::string("{\"row\":7}"));
  cr_assert_eq(read_extra(text).value()->leaf, "new");
}

Test(node_description, extra_of_others_is_nothing_to_us_and_not_overwritten) {
  for (const char* text : {"", "  ", "owned by ops", "[1]", "7", "null", "{\"a\":1}", "{\"a\":"}) {
    const auto read = read_extra(text);
    cr_assert(read.ok(), "%s", text);
    cr_assert_not(read->has_value(), "%s", text);
  }
  const auto refused = write_extra("owned by ops", test::dgx());
  cr_assert_not(refused.ok());
  cr_assert_eq(
      refused.error().message(),
      "Extra is \"owned by ops\", which is not a JSON object, and is left as it is; empty it, or make it one, to have the topology published");
}

Test(node_description, errors_name_place_and_value) {
  cr_assert_eq(bad("7"), "Extra's \"swell\": a node's description is a JSON object");
  cr_assert_eq(bad("{\"v\":2}"),
               "Extra's \"swell\": \"v\" is 2; it must be a whole number from 1 to 1");
  cr_assert_eq(bad(R"({"v":1,"t":["h100"],"g":[[0,0,"1b:00.0"],[1,0,""]]})"),
               "Extra's \"swell\": GPU 1: item 1 must be a whole number from -1 to 0");
  cr_assert_eq(bad(R"({"v":1,"g":[[-1,0,""],[-1,0,""]],"l":["n",450,[1,0,"p",3]]})"),
               "Extra's \"swell\": link 0: item 2 must be a whole number from 2 to 1");
  cr_assert_eq(bad(R"({"v":1,"g":7})"),
               "Extra's \"swell\": \"g\" must be a list of at most 64 GPUs");
  cr_assert_eq(bad(R"({"v":1,"s":["xyz"],"h":[]})"),
               "Extra's \"swell\": subnets: item 1 must be hexadecimal, 16 digits at most");
  bad(R"({"v":1,"h":[["mlx5_0",1,"i",-4,-1,"",0,"",[]]]})");
  bad(R"({"v":1,"h":[["mlx5_0",1,"i",400,-1,"",0,"",[0]]]})");
}

Test(node_description, hostile_text_is_an_error_or_nothing_never_a_crash) {
  const std::string good = write_extra("", test::dgx("leaf")).value();
  std::mt19937 random(7);
  for (int i = 0; i < 20000; ++i) {
    std::string text = good;
    for (unsigned n = 0; n < 1 + random() % 4; ++n) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0: text[at] = static_cast<char>(random()); break;
        case 1: text.erase(at, random() % 9); break;
        case 2: text.insert(at, text.substr(random() % text.size(), random() % 20)); break;
        default: text[at] = "[]{}\",:-9e"[random() % 10]; break;
      }
      if (text.empty()) text = "x";
    }
    if (const auto read = read_extra(text); read && *read)
      cr_assert(read_extra(write_extra(text, **read).value()).ok());
  }
}

Test(node_description, texts_that_are_not_pci_addresses_are_written_and_read_unchanged) {
  NodeDescription node;
  node.gpus.resize(2);
  node.gpus[0].pci = "0000:1c:00.0";
  node.gpus[1].pci = "0000:1c:00.:";
  const auto read = read_extra(write_extra("", node).value());
  cr_assert(read.ok() && read->has_value());
  cr_assert_eq((*read)->gpus[0].pci, std::string("0000:1c:00.0"));
  cr_assert_eq((*read)->gpus[1].pci, std::string("0000:1c:00.:"));
}
