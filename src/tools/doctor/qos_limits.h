// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>

#include "tools/doctor/site.h"

namespace swell::tools::doctor {

/// What a QOS lets a user do that none of his others does.
struct Loophole {
  std::string limit;    ///< "MaxTRESPerUser"
  std::string allowed;  ///< what holds under his own QOS: "gres/gpu=8"
  std::string by;       ///< who says so: a QOS, or account/user of an association
  std::string mend;     ///< what sacctmgr is to set on the QOS: a value, or -1
};

/// Limits that hold for a user's jobs under every other QOS of his, and not under `qos`: neither
/// does it set them as tightly itself, nor does an association or the QOS of every partition in
/// `partition_qos`. A limit that a QOS sets replaces the same limit of an association. One entry a
/// limit, the tightest. Pure.
std::map<std::string, Loophole> loopholes(const Qos& qos, const Accounting& accounting,
                                          const std::vector<std::string>& partition_qos);

/// Limits that a user's other QOS set: what `qos` sets of them is no cap of its own.
bool set_by_others(const std::string& limit, const Qos& qos, const Accounting& accounting);

}  // namespace swell::tools::doctor
