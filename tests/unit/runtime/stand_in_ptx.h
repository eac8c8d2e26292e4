// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <vector>

/// Executes PTX over the host's memory: what Swell's kernel uses of the language, one lane after
/// the other, and nothing else. A module with anything more does not load.
namespace stand_in {

inline constexpr int kInvalidPtx = 218, kIllegalInstruction = 715, kMisaligned = 716;

class Kernel {
 public:
  /// An error of the driver's, or 0.
  static int load(const std::string& text, std::map<std::string, Kernel>& kernels) {
    std::string clean;
    for (const char one : text) clean += one == '\n' || one == '\t' ? ' ' : one;
    std::istringstream words(clean);
    std::string word, rest;
    if (!(words >> word) || word != ".version") return kInvalidPtx;
    const auto entry = clean.find(".entry "), open = clean.find('(', entry),
               close = clean.find(')', open), begin = clean.find('{', close),
               end = clean.rfind('}');
    if (entry == std::string::npos || end == std::string::npos || begin > end ||
        clean.find(".entry ", open) != std::string::npos ||
        clean.find(".address_size 64") == std::string::npos)
      return kInvalidPtx;
    Kernel made;
    std::istringstream parameters(clean.substr(open + 1, close - open - 1));
    for (std::string each; std::getline(parameters, each, ',');) {
      std::string param, type, name;
      std::istringstream(each) >> param >> type >> name;
      if (param != ".param" || (type != ".u64" && type != ".u32")) return kInvalidPtx;
      made.parameters_[name] = made.sizes.size();
      made.sizes.push_back(type == ".u64" ? 8 : 4);
    }
    if (const auto most = clean.find(".maxntid", close); most < begin)
      made.most_threads = static_cast<unsigned>(std::atoi(clean.c_str() + most + 8));
    if (!made.read(clean.substr(begin + 1, end - begin - 1))) return kInvalidPtx;
    std::istringstream(clean.substr(entry + 7, open - entry - 7)) >> word;
    kernels.emplace(word, std::move(made));
    return 0;
  }

  std::vector<std::size_t> sizes;  ///< of the parameters
  unsigned most_threads = 1024;

  /// Returns the driver's error, or 0. Blocks of one dimension.
  int run(unsigned blocks, unsigned threads, const std::vector<std::uint64_t>& given) const {
    for (unsigned block = 0; block < blocks; ++block)
      for (unsigned first = 0; first < threads; first += 32)
        if (const int bad = run_warp(block, first, std::min(32U, threads - first), given))
          return bad;
    return 0;
  }

 private:
  enum class Kind { none, reg, value, param, tid, block };
  struct Operand {
    Kind kind = Kind::none;
    std::uint64_t value = 0;  ///< register, immediate or parameter
    std::uint64_t offset = 0;
  };
  struct Instruction {
    std::string op;     ///< without its type
    unsigned bits = 0;  ///< of its type
    int guard = -1;
    std::vector<Operand> operands;
    std::string label;
    std::size_t target = 0;
  };
  struct Lane {
    std::vector<std::uint64_t> values;
    std::vector<bool> is_set;
    std::size_t at = 0;
    bool is_over = false;
  };

  std::uint64_t number_of(const std::string& name) {
    return registers_.emplace(name, registers_.size()).first->second;
  }

  std::optional<Operand> operand(std::string text) {
    if (text == "%tid.x") return Operand{Kind::tid};
    if (text == "%ctaid.x") return Operand{Kind::block};
    Operand found;
    if (const auto plus = text.find('+'); plus != std::string::npos) {
      found.offset = std::strtoull(text.c_str() + plus + 1, nullptr, 0);
      text.resize(plus);
    }
    if (text.empty()) return std::nullopt;
    if (text[0] == '%') {
      found.kind = Kind::reg;
      found.value = number_of(text);
    } else if (const auto known = parameters_.find(text); known != parameters_.end()) {
      found.kind = Kind::param;
      found.value = known->second;
    } else {
      char* end = nullptr;
      found.kind = Kind::value;
      found.value = std::strtoull(text.c_str(), &end, 0);
      if (*end != 0) return std::nullopt;
    }
    return found;
  }

  bool read(const std::string& body) {
    static const std::map<std::string, std::size_t> known{
        {"ld.param", 2},      {"ld.global", 2}, {"mov", 2}, {"and", 3},     {"or", 3},
        {"xor", 3},           {"shr", 3},       {"shl", 3}, {"add", 3},     {"sub", 3},
        {"mul.wide", 3},      {"mul.lo", 3},    {"min", 3}, {"setp.ge", 3}, {"setp.lt", 3},
        {"setp.ne", 3},       {"cvt.u64", 2},   {"bra", 0}, {"ret", 0},     {"shfl.sync.bfly", 5},
        {"red.global.add", 2}};
    std::map<std::string, std::size_t> labels;
    std::istringstream lines(body);
    for (std::string line; std::getline(lines, line, ';');) {
      for (std::size_t colon; (colon = line.find(':')) != std::string::npos;
           line = line.substr(colon + 1)) {
        std::string label;
        std::istringstream(line.substr(0, colon)) >> label;
        labels[label] = code_.size();
      }
      std::istringstream words(line);
      std::string word;
      if (!(words >> word) || word == ".reg") continue;
      Instruction one;
      if (word[0] == '@') {
        one.guard = static_cast<int>(number_of(word.substr(1)));
        if (!(words >> word)) return false;
      }
      const auto dot = word.rfind('.');
      const std::string type = dot == std::string::npos ? "" : word.substr(dot + 1);
      one.op = word.substr(0, dot);
      one.bits = type == "pred" ? 1
                 : type.empty() ? 0
                                : static_cast<unsigned>(std::atoi(type.c_str() + 1));
      const auto its = known.find(one.op);
      if (its == known.end()) return false;
      if (one.op == "bra") {
        words >> one.label;
      } else {
        std::string rest, each;
        std::getline(words, rest);
        if (one.op == "mov" && rest.find('{') != std::string::npos)
          one.op = rest.find('{') < rest.find(',') ? "split" : "join";
        for (char& c : rest)
          if (std::strchr("{}[]", c) != nullptr) c = ' ';
        for (std::istringstream parts(rest); std::getline(parts, each, ',');) {
          std::string text;
          std::istringstream(each) >> text;
          const auto read = operand(text);
          if (!read) return false;
          one.operands.push_back(*read);
        }
        const bool is_pair = one.op == "split" || one.op == "join";
        if (one.operands.size() != its->second + (is_pair ? 1 : 0)) return false;
      }
      code_.push_back(std::move(one));
    }
    for (Instruction& one : code_) {
      if (one.op != "bra") continue;
      if (!labels.contains(one.label)) return false;
      one.target = labels[one.label];
    }
    return !code_.empty() && code_.back().op == "ret";
  }

  /// Runs a lane up to the next exchange with others, or its end.
  int run_lane(Lane& lane, unsigned block, unsigned thread,
               const std::vector<std::uint64_t>& given) const {
    int bad = 0;
    const auto value = [&](const Operand& from) -> std::uint64_t {
      if (from.kind == Kind::tid) return thread;
      if (from.kind == Kind::block) return block;
      if (from.kind == Kind::param) return given.at(from.value);
      if (from.kind == Kind::value) return from.value;
      // A register that nothing was written to has no value.
      if (!lane.is_set[from.value]) bad = kIllegalInstruction;
      return lane.values[from.value] + from.offset;
    };
    for (; bad == 0; ++lane.at) {
      const Instruction& one = code_[lane.at];
      if (one.guard >= 0 && lane.values[static_cast<std::size_t>(one.guard)] == 0) continue;
      if (one.op == "ret") {
        lane.is_over = true;
        return bad;
      }
      if (one.op == "bra") {
        lane.at = one.target - 1;
        continue;
      }
      if (one.op == "shfl.sync.bfly") return bad;
      const std::uint64_t mask =
          one.bits >= 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << one.bits) - 1;
      const auto set = [&](const Operand& to, std::uint64_t what) {
        lane.values[to.value] = what;
        lane.is_set[to.value] = true;
      };
      const auto& all = one.operands;
      if (one.op == "join") {
        set(all[0], (value(all[1]) & 0xffffffff) | value(all[2]) << 32);
        continue;
      }
      if (one.op == "split") {
        const std::uint64_t both = value(all[2]);
        set(all[0], both & 0xffffffff);
        set(all[1], both >> 32);
        continue;
      }
      if (one.op == "ld.global") {
        const std::uint64_t at = value(all[1]);
        std::uint64_t read = 0;
        if (bad == 0 && at % (one.bits / 8) != 0) bad = kMisaligned;
        if (bad == 0) std::memcpy(&read, reinterpret_cast<const void*>(at), one.bits / 8);
        set(all[0], read);
        continue;
      }
      if (one.op == "red.global.add") {
        const std::uint64_t at = value(all[0]), more = value(all[1]);
        if (bad == 0 && at % 8 != 0) bad = kMisaligned;
        if (bad == 0) std::atomic_ref(*reinterpret_cast<std::uint64_t*>(at)) += more;
        continue;
      }
      const std::uint64_t a = value(all[1]), b = all.size() > 2 ? value(all[2]) : 0;
      std::uint64_t made = 0;
      if (one.op == "mov" || one.op == "ld.param" || one.op == "cvt.u64") made = a & mask;
      else if (one.op == "and") made = a & b;
      else if (one.op == "or") made = a | b;
      else if (one.op == "xor") made = a ^ b;
      else if (one.op == "shr") made = b >= one.bits ? 0 : (a & mask) >> b;
      else if (one.op == "shl") made = b >= one.bits ? 0 : (a << b) & mask;
      else if (one.op == "add") made = (a + b) & mask;
      else if (one.op == "sub") made = (a - b) & mask;
      else if (one.op == "mul.wide") made = (a & mask) * (b & mask);
      else if (one.op == "mul.lo") made = (a * b) & mask;
      else if (one.op == "min") made = std::min(a & mask, b & mask);
      else if (one.op == "setp.ge") made = (a & mask) >= (b & mask);
      else if (one.op == "setp.lt") made = (a & mask) < (b & mask);
      else if (one.op == "setp.ne") made = (a & mask) != (b & mask);
      set(all[0], made);
    }
    return bad;
  }

  int run_warp(unsigned block, unsigned first, unsigned count,
               const std::vector<std::uint64_t>& given) const {
    std::vector<Lane> lanes(count);
    for (Lane& lane : lanes) {
      lane.values.resize(registers_.size());
      lane.is_set.resize(registers_.size());
    }
    while (true) {
      for (unsigned i = 0; i < count; ++i)
        if (!lanes[i].is_over)
          if (const int bad = run_lane(lanes[i], block, first + i, given)) return bad;
      if (lanes[0].is_over) {
        for (const Lane& lane : lanes)
          if (!lane.is_over) return kIllegalInstruction;  // it would wait for ever
        return 0;
      }
      // All are at the exchange, or it would wait for ever.
      const Instruction& one = code_[lanes[0].at];
      std::vector<std::uint64_t> said;
      for (const Lane& lane : lanes) {
        if (lane.is_over || lane.at != lanes[0].at || !lane.is_set[one.operands[1].value] ||
            count != 32 || one.operands[4].value != 0xffffffff)
          return kIllegalInstruction;
        said.push_back(lane.values[one.operands[1].value] & 0xffffffff);
      }
      for (unsigned i = 0; i < count; ++i) {
        const Operand& by = one.operands[2];
        const std::uint64_t other =
            i ^ (by.kind == Kind::reg ? lanes[i].values[by.value] : by.value);
        lanes[i].values[one.operands[0].value] = said.at(other & 31);
        lanes[i].is_set[one.operands[0].value] = true;
        ++lanes[i].at;
      }
    }
  }

  std::map<std::string, std::size_t> parameters_;
  std::map<std::string, std::uint64_t> registers_;
  std::vector<Instruction> code_;
};

}  // namespace stand_in
