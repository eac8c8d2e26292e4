// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/sched/base_scheduler.h"

#include <dlfcn.h>
#include <exception>
#include <fmt/format.h>
#include <string>

#include "plugins/stock_plugin.h"

namespace swell::sched {

namespace {

struct Base {
  void* library = nullptr;
  int (*init)() = nullptr;
  void (*fini)() = nullptr;
  int (*reconfig)() = nullptr;
};
Base base;
std::string problem;

template <typename Function>
void look_up(Function& function, const char* symbol) {
  function = reinterpret_cast<Function>(dlsym(base.library, symbol));
}

const char* load(const std::string& type) {
  const std::string file = "sched_" + type.substr(type.find('/') + 1) + ".so";
  const plugins::StockPlugin stock = plugins::load_stock_plugin(file);
  if (stock.library == nullptr) {
    problem = fmt::format("BaseScheduler={}: {}", type, stock.problem);
    return problem.c_str();
  }
  base.library = stock.library;
  look_up(base.init, "init");
  look_up(base.fini, "fini");
  look_up(base.reconfig, "sched_p_reconfig");
  if (base.init != nullptr && base.init() != 0) {
    problem = fmt::format("BaseScheduler={}: {} failed to start", type, stock.path);
    return problem.c_str();
  }
  return nullptr;
}

}  // namespace

const char* load_base(const char* type) noexcept {
  try {
    return load(type);
  } catch (const std::exception&) { return "BaseScheduler: out of memory while loading it"; }
}

void unload_base() noexcept {
  // Its code stays loaded: a thread of it may still be on its way out.
  if (base.fini != nullptr) base.fini();
  base = Base{};
}

int reconfigure_base() noexcept { return base.reconfig != nullptr ? base.reconfig() : 0; }

}  // namespace swell::sched
