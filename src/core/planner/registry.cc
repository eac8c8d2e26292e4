// SPDX-License-Identifier: GPL-2.0-or-later
#include "core/planner/registry.h"

#include <fmt/format.h>

#include "core/planner/exhaustive.h"
#include "core/planner/grid.h"
#include "core/planner/incremental.h"
#include "core/planner/metis.h"
#include "core/planner/symmetric.h"

namespace swell::planner {

namespace {

template <typename S>
std::unique_ptr<Solver> make() {
  return std::make_unique<S>();
}

constexpr struct {
  const char* name;
  std::unique_ptr<Solver> (*make)();
} kSolvers[] = {
    {"incremental", make<Incremental>},
    {"exhaustive", make<Exhaustive>},
    {"symmetric", make<Symmetric>},
    {"dp-only", make<DpOnly>},
    {"metis", make<Metis>},
    {"grid", make<GridSolver>},
    {"incremental-pruned",
     []() -> std::unique_ptr<Solver> {
       Incremental::Options options;
       options.prunes = true;
       return std::make_unique<Incremental>(options);
     }},
    {"grid-pruned",
     []() -> std::unique_ptr<Solver> {
       return std::make_unique<GridSolver>(GridSolver::Options{GridSolver::Search::pruned});
     }},
};

}  // namespace

Result<std::unique_ptr<Solver>> make_solver(std::string_view name) {
  std::string names;
  for (const auto& solver : kSolvers) {
    if (name == solver.name) return solver.make();
    names += (names.empty() ? "" : ", ") + std::string(solver.name);
  }
  return Error(fmt::format("there is no solver \"{}\"; there are {}", name, names));
}

}  // namespace swell::planner
