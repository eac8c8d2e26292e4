// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/accounts.h"

#include <algorithm>
#include <map>

namespace swell::sim {

namespace {

/// GPU-time lent to each job, by its number counted from 0.
std::vector<double> lent_gpu_s(const Outcome& outcome) {
  std::vector<double> lent(outcome.jobs.size(), 0.0);
  std::vector<const Holding*> last(outcome.jobs.size(), nullptr);
  for (const Holding& holding : outcome.holdings) {
    const std::size_t job = holding.job - 1;
    if (last[job] != nullptr) lent[job] += last[job]->lent * (holding.at_s - last[job]->at_s);
    last[job] = &holding;
  }
  for (std::size_t job = 0; job < lent.size(); ++job)
    if (last[job] != nullptr && last[job]->lent > 0)
      lent[job] += last[job]->lent * std::max(outcome.jobs[job].end_s - last[job]->at_s, 0.0);
  return lent;
}

/// Adds a job to its row; times are sums until divide() makes means of them.
void add(AccountRow& row, const JobOutcome& with, const JobOutcome& fifo, double lent) {
  ++row.jobs;
  row.basic_gpu_s += fifo.basic_gpus * (fifo.jct_s() - fifo.waited_s);
  row.lent_gpu_s += lent;
  if (with.elastic) {
    ++row.elastic;
    row.elastic_jct_with_s += with.jct_s();
    row.elastic_jct_without_s += fifo.jct_s();
    return;
  }
  row.rigid_wait_with_s += with.waited_s;
  row.rigid_wait_without_s += fifo.waited_s;
  row.most_rigid_delay_s = std::max(row.most_rigid_delay_s, with.end_s - fifo.end_s);
}

void divide(AccountRow& row) {
  const int elastic = std::max(row.elastic, 1), rigid = std::max(row.jobs - row.elastic, 1);
  row.elastic_jct_with_s /= elastic;
  row.elastic_jct_without_s /= elastic;
  row.rigid_wait_with_s /= rigid;
  row.rigid_wait_without_s /= rigid;
}

}  // namespace

std::vector<AccountRow> account_rows(const Workload& workload, const Outcome& with,
                                     const Outcome& fifo) {
  const std::vector<double> lent = lent_gpu_s(with);
  std::map<std::string, AccountRow> by_account;
  AccountRow all;
  for (std::size_t i = 0; i < workload.jobs.size(); ++i) {
    AccountRow& row = by_account[workload.jobs[i].account];
    row.account = workload.jobs[i].account;
    add(row, with.jobs[i], fifo.jobs[i], lent[i]);
    add(all, with.jobs[i], fifo.jobs[i], lent[i]);
  }
  std::vector<AccountRow> rows;
  for (auto& [name, row] : by_account) rows.push_back(std::move(row));
  std::stable_sort(rows.begin(), rows.end(), [](const AccountRow& a, const AccountRow& b) {
    return a.basic_gpu_s > b.basic_gpu_s;
  });
  rows.push_back(all);
  for (AccountRow& row : rows) divide(row);
  return rows;
}

}  // namespace swell::sim
