// SPDX-License-Identifier: GPL-2.0-or-later
#pragma once

#include <map>
#include <string>

#include "tools/doctor/site.h"

namespace swell::tools::doctor {

/// A limit that a user's other QOS have and one QOS lacks.
struct Loophole {
  std::string limit;    ///< "MaxTRESPerUser"
  std::string allowed;  ///< value under the other QOS: "gres/gpu=8"
  std::string by;       ///< QOS that sets it, or account/user of the association that does
  std::string fix;      ///< value for sacctmgr to set on the QOS, or -1 to remove its own
};

/// Returns limits that hold for a user's jobs under every other QOS of the user but not under
/// `qos`: neither `qos` itself, nor an association, nor the QOS of every partition in
/// `partition_qos` is as tight. A limit of a QOS replaces the same limit of an association. One
/// entry for each limit, the tightest. Pure.
std::map<std::string, Loophole> loopholes(const Qos& qos, const Accounting& accounting,
                                          const std::vector<std::string>& partition_qos);

/// Returns whether all other QOS of some user set `limit`: then a value that `qos` sets does not
/// cap lending any further.
bool set_by_others(const std::string& limit, const Qos& qos, const Accounting& accounting);

}  // namespace swell::tools::doctor
