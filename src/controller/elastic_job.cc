// SPDX-License-Identifier: GPL-2.0-or-later
#include "controller/elastic_job.h"

namespace swell::controller {

std::vector<const Companion*> ElasticJob::companions_beyond(int max) const {
  std::vector<const Companion*> beyond;
  int kept = kept_gpus();
  for (const Companion& companion : companions) {
    if (companion.is_leaving() || kept <= max) continue;
    kept -= companion.gpus.count;
    beyond.push_back(&companion);
  }
  return beyond;
}

control::Tag ElasticJob::tag() const {
  const control::Status& said = agent_words.last();
  std::vector<control::CompanionWord> words;
  for (const Companion& companion : companions)
    words.push_back({companion.id, companion.node, companion.gpus.indices, companion.gpus.count});
  control::Tag tag{{"elastic", spec.text()}, {"basic", std::to_string(basic_gpus)}};
  if (wanted_gpus > 0) tag.set("wanted", std::to_string(wanted_gpus));
  tag.set("lent", std::to_string(companions.lent_gpus()))
      .set("state", to_text(said.state))
      .set("generation", std::to_string(said.generation))
      .set("workers", std::to_string(said.workers))
      .set("grants", std::to_string(lending.grants()))
      .set("reclaims", std::to_string(lending.reclaims()))
      .set("companions", control::companions_text(words));
  if (!said.no_growth.empty()) tag.set("no_growth", control::as_word(said.no_growth));
  if (!said.switched.empty()) tag.set("switched", control::as_word(said.switched));
  if (!decision.by().empty()) tag.set("decided", control::as_word(decision.by()));
  if (!decision.why().empty()) tag.set("decided_why", control::as_word(decision.why()));
  if (!lending.taken_back().empty()) tag.set("taken_back", control::as_word(lending.taken_back()));
  if (const std::string its = deadline.words(); spec.deadline && !its.empty())
    tag.set("deadline", control::as_word(its));
  if (!description.chosen().empty()) tag.set("chosen", control::as_word(description.chosen()));
  if (!description.speeds().empty()) tag.set("speeds", description.speeds());
  if (description.moved() > 0) tag.set("moved", std::to_string(description.moved()));
  if (limits.is_paused()) tag.set("paused", "1");
  if (limits.max_gpus() > 0) tag.set("own_max", std::to_string(limits.max_gpus()));
  if (const Offers::Refused& refused = offers.refused(); refused.times > 0)
    tag.set("refused", std::to_string(refused.times))
        .set("why", refused.kind.empty() ? "?" : refused.kind);
  return tag;
}

}  // namespace swell::controller
