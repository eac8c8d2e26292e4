// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugins/sched/base_scheduler.h"

#include <dlfcn.h>
#include <fmt/format.h>

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

template <typename Function>
void look_up(Function& function, const char* symbol) {
  function = reinterpret_cast<Function>(dlsym(base.library, symbol));
}

}  // namespace

std::string load_base(const std::string& type) {
  const std::string file = "sched_" + type.substr(type.find('/') + 1) + ".so";
  const plugins::StockPlugin stock = plugins::load_stock_plugin(file);
  if (stock.library == nullptr) return fmt::format("BaseScheduler={}: {}", type, stock.problem);
  base.library = stock.library;
  look_up(base.init, "init");
  look_up(base.fini, "fini");
  look_up(base.reconfig, "sched_p_reconfig");
  if (base.init != nullptr && base.init() != 0)
    return fmt::format("BaseScheduler={}: {} failed to start", type, stock.path);
  return {};
}

void unload_base() noexcept {
  if (base.fini != nullptr) base.fini();  // waits for its threads
  // Unload it, as Slurm does: a backup controller that takes over again loads it again, which
  // resets the flag that ended its thread.
  if (base.library != nullptr) dlclose(base.library);
  base = Base{};
}

int reconfigure_base() noexcept { return base.reconfig != nullptr ? base.reconfig() : 0; }

}  // namespace swell::sched
