// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/history_requests.h"

#include <unistd.h>
#include <utility>

namespace swell::controller {

void HistoryRequests::ask(const control::Server::Event& event, const control::Ask& ask) {
  if (loop_.history == nullptr)
    return loop_.sessions.refuse(event.connection,
                                 history_is_built_in()
                                     ? "no history is kept: HistoryDays=0 in swell.conf"
                                     : "no history is kept: this Swell was built without SQLite");
  History::Question question;
  question.connection = event.connection;
  question.job = ask.job;
  if (event.uid != 0 && event.uid != geteuid()) question.uid = event.uid;
  question.after = ask.number;
  question.last = ask.last;
  question.with_profiles = ask.profiles;
  if (!loop_.history->ask(question))
    loop_.sessions.refuse(event.connection, "too many ask for history just now: ask again");
}

void HistoryRequests::answer(const Refuse& refuse) {
  if (loop_.history == nullptr) return;
  for (History::Reply& reply : loop_.history->take()) {
    if (!reply.found) {
      refuse(reply.connection, reply.found.error().message());
      continue;
    }
    loop_.sessions.send(reply.connection, control::Answer{{}, std::move(*reply.found)});
    loop_.sessions.close(reply.connection);
  }
}

}  // namespace swell::controller
