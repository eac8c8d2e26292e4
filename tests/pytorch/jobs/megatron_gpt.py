# SPDX-License-Identifier: GPL-2.0-or-later
"""A loop as in Megatron-Core's examples: GPT of 4 layers. Arguments: `tp2`, `pp2`, `vpp2`, `cp3`: degrees; `distributed`: its distributed optimizer; `wide`: a
larger model; `batch8`: a smaller global batch; `batched`: its
exchanges between stages go in batches; `torch-adam`: Apex is not there."""

import random
import sys
import warnings
from functools import partial

import torch
import torch.distributed as dist

warnings.simplefilter("ignore")     # what Megatron-Core says of packages that are not there

from megatron.core import parallel_state, tensor_parallel  # noqa: E402
from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig, finalize_model_grads  # noqa: E402
from megatron.core.models.gpt import GPTModel  # noqa: E402
from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec  # noqa: E402
from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer  # noqa: E402
from megatron.core.pipeline_parallel import get_forward_backward_func  # noqa: E402
from megatron.core.transformer import TransformerConfig  # noqa: E402

import common  # noqa: E402
import megatron_host  # noqa: E402
from swell.integrations.megatron import Degrees, MegatronElastic  # noqa: E402

LAYERS, LENGTH, WORDS = 4, 16, 64


def mean_of(output):
    loss = output.mean()
    return loss, {"loss": loss.detach().clone()}     # Megatron-Core divides the other in place


def forward_step(samples, model):
    words = next(samples)
    mask = torch.triu(torch.ones(1, 1, LENGTH, LENGTH), 1).bool()
    return model(words, torch.arange(LENGTH).expand_as(words), mask, labels=words.roll(-1, 1)), mean_of


class Masked(torch.utils.data.Dataset):
    """Changes a word of each sample at random as it is read."""

    def __init__(self):
        self.made = torch.randint(0, WORDS, (96, LENGTH), generator=torch.Generator().manual_seed(3))

    def __len__(self):
        return len(self.made)

    def __getitem__(self, index):
        words = self.made[index].clone()
        words[random.randrange(LENGTH)] = torch.randint(0, WORDS, ())
        return words


def models(config, vpp, is_distributed):
    for chunk in range(vpp):
        at = {"ignore_virtual": False, "vp_stage": chunk if vpp > 1 else None}
        torch.manual_seed(5)
        model = GPTModel(config, get_gpt_layer_local_spec(), vocab_size=WORDS, max_sequence_length=LENGTH, vp_stage=at["vp_stage"],
                         pre_process=parallel_state.is_pipeline_first_stage(**at), post_process=parallel_state.is_pipeline_last_stage(**at))
        yield DistributedDataParallel(config, DistributedDataParallelConfig(use_distributed_optimizer=is_distributed), model, disable_bucketing=chunk > 0)


def mean_loss(losses, dp):
    """Over the global batch, on all workers."""
    mine = torch.zeros(1)
    if losses and parallel_state.get_tensor_model_parallel_rank() == 0 and parallel_state.get_context_parallel_rank() == 0:
        mine += torch.stack([each["loss"] for each in losses]).mean()
    dist.all_reduce(mine)
    return mine.item() / dp


def main(arguments):
    common.die_as_told()
    megatron_host.begin(has_fused_adam="torch-adam" not in arguments)
    dist.init_process_group("gloo")
    wanted = {word[:-1]: int(word[-1]) for word in arguments if word[:-1] in ("tp", "pp", "vpp", "cp")}
    degrees, is_distributed = Degrees.given(**wanted), "distributed" in arguments
    parallel_state.initialize_model_parallel(**degrees.groups())
    tensor_parallel.model_parallel_cuda_manual_seed(1)
    overlaps = degrees.vpp > 1 and "batched" not in arguments
    config = TransformerConfig(
        num_layers=LAYERS, hidden_size=64 if "wide" in arguments else 32, num_attention_heads=4, hidden_dropout=0.0, attention_dropout=0.0,
        pipeline_dtype=torch.float32, gradient_accumulation_fusion=False, use_cpu_initialization=True, bias_dropout_fusion=False,
        masked_softmax_fusion=False, overlap_p2p_comm=overlaps, batch_p2p_comm=not overlaps, persist_layer_norm=False, finalize_model_grads_func=finalize_model_grads, **degrees.config())
    chunks = list(models(config, degrees.vpp, is_distributed))
    optimizer = get_megatron_optimizer(OptimizerConfig(optimizer="adam", lr=3e-3, use_distributed_optimizer=is_distributed), chunks)
    elastic = MegatronElastic(chunks, optimizer, degrees=degrees, directory=common.path("checkpoints"), global_batch=8 if "batch8" in arguments else 12,
                              micro_batch=1, checkpoint_every=5)
    run = partial(get_forward_backward_func(), forward_step_func=forward_step, seq_length=LENGTH, forward_only=False)
    for batch in elastic.batches(Masked(), steps=common.steps()):
        for chunk in chunks:
            chunk.zero_grad_buffer()
        optimizer.zero_grad()
        losses = run(**batch)
        optimizer.step()
        common.log(elastic.steps + 1, mean_loss(losses, degrees.dp), degrees.world)
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1:])
