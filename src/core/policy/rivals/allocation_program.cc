// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/allocation_program.h"

#include <algorithm>
#include <cmath>
#include <glpk.h>
#include <memory>

namespace swell::policy {

namespace {

constexpr int kMaxNodes = 2000;
constexpr double kGap = 1e-4;
constexpr int kMaxRoundings = 50;  // each takes about as long as a few nodes of the search

struct Column {
  std::size_t job;
  std::size_t choice;
};

class Solver {
 public:
  explicit Solver(const AllocationProgram& program)
      : program_(program), lp_(glp_create_prob(), glp_delete_prob) {
    // GLPK's columns and rows count from 1; row 1 + t is type t, the jobs follow.
    const int types = static_cast<int>(program.capacity.size()),
              jobs = static_cast<int>(program.jobs.size());
    glp_set_obj_dir(lp_.get(), GLP_MIN);
    glp_add_rows(lp_.get(), types + jobs);
    for (int t = 0; t < types; ++t)
      glp_set_row_bnds(lp_.get(), 1 + t, GLP_UP, 0, program.capacity[static_cast<std::size_t>(t)]);
    for (int j = 0; j < jobs; ++j) {
      glp_set_row_bnds(lp_.get(), 1 + types + j, GLP_UP, 0, 1);
      add_columns(static_cast<std::size_t>(j), 1 + types + j);
    }
  }

  Allocation solve() {
    best_ = round_down(program_, std::vector<std::vector<double>>(program_.jobs.size()));
    if (columns_.empty()) return best_;
    glp_smcp simplex;
    glp_init_smcp(&simplex);
    simplex.msg_lev = GLP_MSG_OFF;
    if (glp_simplex(lp_.get(), &simplex) != 0 || glp_get_status(lp_.get()) != GLP_OPT) return best_;
    keep(round_down(program_, shares(lp_.get(), &glp_get_col_prim)));
    const double bound = glp_get_obj_val(lp_.get());
    if (best_.cost - bound <= kGap * std::abs(bound)) {
      best_.proven = true;
      return best_;
    }
    glp_iocp options;
    glp_init_iocp(&options);
    options.msg_lev = GLP_MSG_OFF;
    options.mip_gap = kGap;
    options.br_tech = GLP_BR_MFV;
    options.bt_tech = GLP_BT_BLB;
    options.cb_func = &Solver::called_back;
    options.cb_info = this;
    const int failed = glp_intopt(lp_.get(), &options);
    const int status = glp_mip_status(lp_.get());
    if (status == GLP_OPT || status == GLP_FEAS)
      keep(round_down(program_, shares(lp_.get(), &glp_mip_col_val)));
    best_.proven = !stopped_ && (failed == 0 || failed == GLP_EMIPGAP);
    return best_;
  }

 private:
  void add_columns(std::size_t job, int row) {
    const std::vector<Choice>& choices = program_.jobs[job];
    for (std::size_t k = 0; k < choices.size(); ++k) {
      const Choice& choice = choices[k];
      const bool worse = std::any_of(choices.begin(), choices.end(), [&](const Choice& other) {
        return other.type == choice.type && other.gpus < choice.gpus && other.cost <= choice.cost;
      });
      if (worse || choice.gpus > program_.capacity[static_cast<std::size_t>(choice.type)]) continue;
      const int column = glp_add_cols(lp_.get(), 1);
      glp_set_col_kind(lp_.get(), column, GLP_BV);
      glp_set_obj_coef(lp_.get(), column, choice.cost);
      const int rows[] = {0, 1 + choice.type, row};
      const double values[] = {0, static_cast<double>(choice.gpus), 1};
      glp_set_mat_col(lp_.get(), column, 2, rows, values);
      columns_.push_back({job, k});
    }
  }

  std::vector<std::vector<double>> shares(glp_prob* lp, double (*value)(glp_prob*, int)) const {
    std::vector<std::vector<double>> share(program_.jobs.size());
    for (std::size_t job = 0; job < share.size(); ++job)
      share[job].assign(program_.jobs[job].size(), 0.0);
    for (std::size_t i = 0; i < columns_.size(); ++i)
      share[columns_[i].job][columns_[i].choice] = value(lp, static_cast<int>(i) + 1);
    return share;
  }

  void keep(Allocation found) {
    if (found.cost < best_.cost) best_ = std::move(found);
  }

  static void called_back(glp_tree* tree, void* self) { static_cast<Solver*>(self)->step(tree); }

  void step(glp_tree* tree) {
    int nodes = 0;
    glp_ios_tree_size(tree, nullptr, nullptr, &nodes);
    if (nodes > kMaxNodes) {
      stopped_ = true;
      glp_ios_terminate(tree);
    }
    if (glp_ios_reason(tree) != GLP_IHEUR || roundings_++ >= kMaxRoundings) return;
    keep(round_down(program_, shares(glp_ios_get_prob(tree), &glp_get_col_prim)));
    std::vector<double> values(columns_.size() + 1, 0.0);
    for (std::size_t i = 0; i < columns_.size(); ++i)
      values[i + 1] =
          best_.chosen[columns_[i].job] == static_cast<int>(columns_[i].choice) ? 1.0 : 0.0;
    glp_ios_heur_sol(tree, values.data());
  }

  const AllocationProgram& program_;
  std::unique_ptr<glp_prob, void (*)(glp_prob*)> lp_;
  std::vector<Column> columns_;
  Allocation best_;
  bool stopped_ = false;
  int roundings_ = 0;
};

}  // namespace

Allocation minimize(const AllocationProgram& program) { return Solver(program).solve(); }

}  // namespace swell::policy
