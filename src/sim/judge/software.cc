// SPDX-License-Identifier: GPL-2.0-or-later
#include "sim/judge/software.h"

namespace swell::sim::judge {

Software Software::fused() {
  Software made;
  made.name = "fused";
  made.attention_share = 0.5;
  return made;
}

Software Software::megatron_deepspeed() {
  Software made;
  made.name = "megatron-deepspeed";
  made.score_bytes = 51;
  made.layer_launch_s = 2.96e-3;
  made.head_launch_s = 2.9e-3;
  made.repeated_forward = 1;
  made.update_launch_s = 0.5e-3;
  made.overlapped_share = 0;
  made.bucket_bytes = 500e6;
  return made;
}

Software Software::fsdp() {
  Software made = fused();
  made.name = "fsdp";
  // Checkpointing lowers the published MFU by 10 to 17 %, less than a full repeat would (25 %).
  made.repeated_forward = 0.5;
  return made;
}

Software Software::data_parallel() {
  Software made = fused();
  made.name = "data-parallel";
  made.score_bytes = 51;
  made.gradient_bytes = 4;
  // Nothing is fused: the optimizer updates 148 tensors one by one.
  made.layer_launch_s = 1.6e-3;
  made.update_launch_s = 14e-3;
  made.overlapped_share = 0.1;
  return made;
}

Software Software::alpa() {
  Software made = megatron_deepspeed();
  made.name = "alpa";
  made.layer_launch_s = 0.75e-3;
  made.head_launch_s = 0.75e-3;
  made.sharded_bytes = 12;
  made.state_bytes = 4;
  return made;
}

}  // namespace swell::sim::judge
