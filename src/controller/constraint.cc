// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/constraint.h"

#include <algorithm>
#include <fmt/format.h>
#include <set>
#include <utility>

#include "control/printable.h"

namespace swell::controller {

namespace {

using policy::NodeSet;

constexpr int kMaxDepth = 32;
constexpr std::string_view kSigns = "&|,()[]*!";

}  // namespace

/// Recursive descent over one text.
class Constraint::Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  Result<Term> run() {
    Result<Term> term = list(0);
    if (!term) return term;
    if (at_ != text_.size()) return unknown();
    return term;
  }

 private:
  char next() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  bool take(char sign) {
    if (next() != sign) return false;
    ++at_;
    return true;
  }
  Error error(const std::string& why) const {
    return Error(fmt::format("its constraint \"{}\" is not understood by Swell: {}",
                             control::printable(text_, 100), why));
  }
  Error unknown() const {
    if (at_ >= text_.size()) return error("it ends too early");
    return error(fmt::format("\"{}\" at its character {}", control::printable(text_.substr(at_, 1)),
                             at_ + 1));
  }

  /// Terms joined by signs of one kind.
  Result<Term> list(int depth) {
    if (depth > kMaxDepth) return error("its parentheses are nested too deeply");
    Term all;
    char joined_by = '\0';
    for (;;) {
      Result<Term> one = term(depth);
      if (!one) return one;
      all.terms.push_back(std::move(*one));
      char sign = next();
      if (sign == ',') sign = '&';
      if (sign != '&' && sign != '|') break;
      if (joined_by != '\0' && sign != joined_by)
        return error("write parentheses where & and | stand side by side, such as (a|b)&c");
      joined_by = sign;
      ++at_;
    }
    all.kind = joined_by == '|' ? Term::Kind::any_of : Term::Kind::all_of;
    drop_repeated(all);
    if (all.terms.size() > 1) return all;
    Term only = std::move(all.terms.front());
    return only;
  }

  /// Features that are named again say nothing new.
  static void drop_repeated(Term& list) {
    std::set<std::pair<std::string, bool>> seen;
    std::erase_if(list.terms, [&](const Term& each) {
      return each.kind == Term::Kind::feature && !seen.emplace(each.feature, each.counted).second;
    });
  }

  Result<Term> term(int depth) {
    if (take('(')) {
      Result<Term> inner = list(depth + 1);
      if (!inner) return inner;
      if (!take(')')) return unknown();
      return counted(std::move(*inner));
    }
    if (take('[')) {
      Result<Term> inner = list(depth + 1);
      if (!inner) return inner;
      if (!take(']')) return unknown();
      if (has_count(*inner)) return error("a count within []");
      if (next() == '*') return error("a count behind []");
      Term same;
      same.kind = Term::Kind::same;
      same.terms.push_back(std::move(*inner));
      return same;
    }
    Term feature;
    while (at_ < text_.size() && kSigns.find(next()) == kSigns.npos)
      feature.feature += text_[at_++];
    if (feature.feature.empty()) return unknown();
    return counted(std::move(feature));
  }

  Result<Term> counted(Term term) {
    if (!take('*')) return term;
    const std::size_t begin = at_;
    while (next() >= '0' && next() <= '9') ++at_;
    if (at_ == begin) return unknown();
    term.counted = true;
    return term;
  }

  static bool has_count(const Term& term) {
    return term.counted || std::any_of(term.terms.begin(), term.terms.end(), has_count);
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

Result<Constraint> Constraint::parse(std::string_view text) {
  Result<Term> root = Parser(text).run();
  if (!root) return root.error();
  Constraint constraint;
  constraint.root_ = std::make_shared<const Term>(std::move(*root));
  return constraint;
}

NodeSet Constraint::read(const Term& term, const Reading& reading) {
  if (term.counted && reading.own == nullptr) return *reading.all;
  switch (term.kind) {
    case Term::Kind::feature: return reading.nodes(term.feature);
    case Term::Kind::any_of: {
      NodeSet any;
      for (const Term& each : term.terms) any |= read(each, reading);
      return any;
    }
    case Term::Kind::all_of: {
      NodeSet both = read(term.terms.front(), reading);
      for (std::size_t i = 1; i < term.terms.size(); ++i) both &= read(term.terms[i], reading);
      return both;
    }
    case Term::Kind::same: break;
  }
  const Term& list = term.terms.front();
  if (reading.own == nullptr || list.kind != Term::Kind::any_of) return read(list, reading);
  // The one that its own nodes have in common: Slurm chose it, or might have.
  for (const Term& each : list.terms) {
    NodeSet nodes = read(each, reading), outside = *reading.own;
    if ((outside -= nodes).empty()) return nodes;
  }
  return {};
}

NodeSet Constraint::lendable(const Nodes& nodes, const NodeSet& own) const {
  return read(*root_, {nodes, &own, nullptr});
}

NodeSet Constraint::possible(const Nodes& nodes, const NodeSet& all) const {
  return read(*root_, {nodes, nullptr, &all});
}

}  // namespace swell::controller
