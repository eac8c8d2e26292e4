// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/policy/rivals/fair_program.h"

#include <algorithm>
#include <glpk.h>
#include <memory>

namespace swell::policy {

namespace {

// Share of the minimum rate that the second program may give up: the simplex is not exact.
constexpr double kSlack = 1e-6;

class Program {
 public:
  Program(const FairProgram& program, bool sum)
      : program_(program), sum_(sum), lp_(glp_create_prob(), glp_delete_prob) {
    // GLPK counts columns and rows from 1. Column 1 is the smallest rate. Rows: one for each type,
    // then two for each job: its time, and its rate less column 1.
    const int types = static_cast<int>(program.capacity.size()),
              jobs = static_cast<int>(program.jobs.size());
    glp_set_obj_dir(lp_.get(), GLP_MAX);
    glp_add_rows(lp_.get(), types + 2 * jobs);
    for (int t = 0; t < types; ++t)
      glp_set_row_bnds(lp_.get(), 1 + t, GLP_UP, 0, program.capacity[static_cast<std::size_t>(t)]);
    glp_add_cols(lp_.get(), 1);
    glp_set_col_bnds(lp_.get(), 1, GLP_LO, 0, 0);
    std::vector<int> rows(1);
    std::vector<double> values(1);
    for (int j = 0; j < jobs; ++j) {
      const int time = 1 + types + 2 * j, rate = time + 1;
      glp_set_row_bnds(lp_.get(), time, GLP_UP, 0, 1);
      if (add_columns(static_cast<std::size_t>(j), time, rate) && !sum) {
        glp_set_row_bnds(lp_.get(), rate, GLP_LO, 0, 0);
        rows.push_back(rate);
        values.push_back(-1);
      } else {
        glp_set_row_bnds(lp_.get(), rate, GLP_FR, 0, 0);
      }
    }
    glp_set_mat_col(lp_.get(), 1, static_cast<int>(rows.size()) - 1, rows.data(), values.data());
  }

  std::vector<std::vector<double>> solve() {
    std::vector<std::vector<double>> share(program_.jobs.size());
    for (std::size_t job = 0; job < share.size(); ++job)
      share[job].assign(program_.jobs[job].size(), 0.0);
    if (columns_.empty()) return share;
    if (!sum_) {
      glp_set_obj_coef(lp_.get(), 1, 1);
      if (!is_solved()) return share;
      const double least = glp_get_col_prim(lp_.get(), 1) * (1 - kSlack);
      glp_set_obj_coef(lp_.get(), 1, 0);
      glp_set_col_bnds(lp_.get(), 1, GLP_FX, std::max(0.0, least), 0);
      read(share);
    }
    for (std::size_t i = 0; i < columns_.size(); ++i)
      glp_set_obj_coef(lp_.get(), static_cast<int>(i) + 2, choice(i).rate);
    if (is_solved()) read(share);
    return share;
  }

 private:
  struct Column {
    std::size_t job, choice;
  };
  const FairChoice& choice(std::size_t i) const {
    return program_.jobs[columns_[i].job][columns_[i].choice];
  }

  bool add_columns(std::size_t job, int time, int rate) {
    bool any = false;
    for (std::size_t k = 0; k < program_.jobs[job].size(); ++k) {
      const FairChoice& one = program_.jobs[job][k];
      if (one.gpus > program_.capacity[static_cast<std::size_t>(one.type)]) continue;
      const int column = glp_add_cols(lp_.get(), 1);
      glp_set_col_bnds(lp_.get(), column, GLP_LO, 0, 0);
      const int rows[] = {0, 1 + one.type, time, rate};
      const double values[] = {0, static_cast<double>(one.gpus), 1, one.rate};
      glp_set_mat_col(lp_.get(), column, 3, rows, values);
      columns_.push_back({job, k});
      any = true;
    }
    return any;
  }

  bool is_solved() {
    glp_smcp simplex;
    glp_init_smcp(&simplex);
    simplex.msg_lev = GLP_MSG_OFF;
    return glp_simplex(lp_.get(), &simplex) == 0 && glp_get_status(lp_.get()) == GLP_OPT;
  }

  void read(std::vector<std::vector<double>>& share) const {
    for (std::size_t i = 0; i < columns_.size(); ++i)
      share[columns_[i].job][columns_[i].choice] =
          std::clamp(glp_get_col_prim(lp_.get(), static_cast<int>(i) + 2), 0.0, 1.0);
  }

  const FairProgram& program_;
  bool sum_;
  std::unique_ptr<glp_prob, void (*)(glp_prob*)> lp_;
  std::vector<Column> columns_;
};

}  // namespace

std::vector<std::vector<double>> fair_shares(const FairProgram& program, bool sum) {
  return Program(program, sum).solve();
}

}  // namespace swell::policy
