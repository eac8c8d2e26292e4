# SPDX-License-Identifier: GPL-2.0-or-later
"""Tiny models of each family, plans over them, and batches."""

import pool  # noqa: F401  the path
import torch
import transformers

from swell.engine import Group, Plan, Stage

VOCABULARY, LENGTH, LAYERS, BATCH = 96, 12, 4, 12
_COMMON = dict(vocab_size=VOCABULARY, hidden_size=32, num_hidden_layers=LAYERS, num_attention_heads=4, max_position_embeddings=32,
               bos_token_id=1, eos_token_id=2, pad_token_id=0)
_GATED = dict(_COMMON, intermediate_size=48)
CONFIGS = {
    "llama": lambda: transformers.LlamaConfig(**_GATED),
    "llama_gqa_tied": lambda: transformers.LlamaConfig(**_GATED, num_key_value_heads=2, tie_word_embeddings=True),
    "mistral": lambda: transformers.MistralConfig(**_GATED, num_key_value_heads=2, sliding_window=6, head_dim=8),
    "qwen2": lambda: transformers.Qwen2Config(**_GATED, num_key_value_heads=2),
    "qwen3": lambda: transformers.Qwen3Config(**_GATED, num_key_value_heads=2, head_dim=8),
    "gemma": lambda: transformers.GemmaConfig(**_GATED, num_key_value_heads=2, head_dim=8),
    "gemma2": lambda: transformers.Gemma2Config(**_GATED, num_key_value_heads=2, head_dim=8, sliding_window=6),
    "phi": lambda: transformers.PhiConfig(**_GATED),
    "phi3": lambda: transformers.Phi3Config(**_GATED, num_key_value_heads=2),
    "gpt2": lambda: transformers.GPT2Config(vocab_size=VOCABULARY, n_embd=32, n_layer=LAYERS, n_head=4, n_positions=32, embd_pdrop=0.0,
                                            attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=1, eos_token_id=2),
    "opt": lambda: transformers.OPTConfig(**_COMMON, ffn_dim=48, word_embed_proj_dim=32, dropout=0.0),
    "gpt_neox": lambda: transformers.GPTNeoXConfig(**_GATED),
    "mixtral": lambda: transformers.MixtralConfig(**_GATED, num_key_value_heads=2, num_local_experts=4, num_experts_per_tok=2,
                                                  sliding_window=None),
    "qwen3_moe": lambda: transformers.Qwen3MoeConfig(**_GATED, num_key_value_heads=2, head_dim=8, num_experts=4, num_experts_per_tok=2,
                                                     moe_intermediate_size=16),
    "olmo2": lambda: transformers.Olmo2Config(**_GATED, num_key_value_heads=2),
    "granite": lambda: transformers.GraniteConfig(**_GATED, num_key_value_heads=2),
    "starcoder2": lambda: transformers.Starcoder2Config(**_GATED, num_key_value_heads=2, residual_dropout=0.0, embedding_dropout=0.0),
}
# Families that run under fewer plans, as those above have shown what each plan does.
_GROUPED = dict(_GATED, num_key_value_heads=2)
_OLD = dict(vocab_size=VOCABULARY, n_embd=32, n_layer=LAYERS, n_head=4, n_positions=32, embd_pdrop=0.0, attn_pdrop=0.0, resid_pdrop=0.0, bos_token_id=1, eos_token_id=2)
MORE = {
    "falcon": lambda: transformers.FalconConfig(**_COMMON, hidden_dropout=0.0, attention_dropout=0.0),
    "falcon_40b": lambda: transformers.FalconConfig(**_COMMON, new_decoder_architecture=True, num_kv_heads=2, hidden_dropout=0.0, attention_dropout=0.0, bias=True),
    "falcon_rw": lambda: transformers.FalconConfig(**_COMMON, alibi=True, multi_query=False, parallel_attn=False, hidden_dropout=0.0, attention_dropout=0.0),
    "bloom": lambda: transformers.BloomConfig(vocab_size=VOCABULARY, hidden_size=32, n_layer=LAYERS, n_head=4, hidden_dropout=0.0, attention_dropout=0.0,
                                              bos_token_id=1, eos_token_id=2, pad_token_id=0),
    "stablelm": lambda: transformers.StableLmConfig(**_GROUPED),
    "stablelm_12b": lambda: transformers.StableLmConfig(**_GROUPED, qk_layernorm=True, use_parallel_residual=True),
    "gptj": lambda: transformers.GPTJConfig(**_OLD, rotary_dim=4),
    "gpt_neo": lambda: transformers.GPTNeoConfig(vocab_size=VOCABULARY, hidden_size=32, num_layers=LAYERS, num_heads=4, attention_types=[[["global", "local"], 2]], window_size=4,
                                                 max_position_embeddings=32, bos_token_id=1, eos_token_id=2),
    "gpt_bigcode": lambda: transformers.GPTBigCodeConfig(**_OLD),
    "mpt": lambda: transformers.MptConfig(vocab_size=VOCABULARY, d_model=32, n_layers=LAYERS, n_heads=4, max_seq_len=32),
    "codegen": lambda: transformers.CodeGenConfig(**_OLD, n_ctx=32, rotary_dim=4),
    "gpt_oss": lambda: transformers.GptOssConfig(**dict(_GROUPED, intermediate_size=16), head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=6),
    "gemma3_text": lambda: transformers.Gemma3TextConfig(**_GROUPED, head_dim=8, sliding_window=6),
    "cohere": lambda: transformers.CohereConfig(**_GROUPED),
    "smollm3": lambda: transformers.SmolLM3Config(**_GROUPED),
    "glm4": lambda: transformers.Glm4Config(**_GROUPED, head_dim=8),
    "deepseek_v3": lambda: transformers.DeepseekV3Config(**dict(_GATED, num_key_value_heads=4), moe_intermediate_size=16, n_routed_experts=4, n_shared_experts=1, num_experts_per_tok=2,
                                                         n_group=2, topk_group=1, q_lora_rank=16, kv_lora_rank=16, qk_nope_head_dim=8, qk_rope_head_dim=8, v_head_dim=8,
                                                         first_k_dense_replace=1),
}
ALL = {**CONFIGS, **MORE}


def plan(micro_batches, *stages):
    """Stages as (layers, tp, [local batches]), and numbers of units of chunks."""
    made, gpu = [], 0
    for layers, tp, batches, *chunks in stages:
        groups = []
        for local in batches:
            groups.append(Group("node", "type", tuple(range(gpu, gpu + tp)), local))
            gpu += tp
        made.append(Stage(layers, tp, tuple(groups), tuple(chunks)))
    return Plan(micro_batches, tuple(made))


PLANS = {
    "one worker": plan(3, (4, 1, [4])),
    "dp2": plan(3, (4, 1, [2, 2])),
    "dp3 uneven local batches": plan(2, (4, 1, [3, 2, 1])),
    "tp2": plan(2, (4, 2, [6])),
    "pp2": plan(6, (2, 1, [2]), (2, 1, [2])),
    "pp4": plan(4, (1, 1, [3]), (1, 1, [3]), (1, 1, [3]), (1, 1, [3])),
    "pp2 uneven layers": plan(4, (3, 1, [3]), (1, 1, [3])),
    "pp2 dp2": plan(3, (2, 1, [2, 2]), (2, 1, [2, 2])),
    "pp2 tp2": plan(4, (2, 2, [3]), (2, 2, [3])),
    "pp2 dp2 tp2": plan(3, (2, 2, [2, 2]), (2, 2, [2, 2])),
    "dp by stage: 1, 2": plan(3, (2, 1, [4]), (2, 1, [2, 2])),
    "dp by stage: 3, 2": plan(2, (1, 1, [1, 3, 2]), (3, 1, [4, 2])),
    "tp by stage: 2, 1": plan(3, (3, 2, [4]), (1, 1, [4])),
    "tp and dp by stage: 2x1, 1x3": plan(2, (2, 2, [6]), (2, 1, [2, 1, 3])),
    "three stages, all different": plan(3, (1, 1, [1, 3]), (2, 2, [4]), (1, 1, [2, 2])),
}
FEW = ("pp2 dp2 tp2", "dp by stage: 3, 2", "three stages, all different")       # for MORE
# Plans of several chunks a stage, some with a No-Op, an embedding or a head alone.
CHUNKS = {
    "one stage, three chunks": plan(3, (4, 1, [4], 1, 0, 3)),
    "pp2, two chunks, embedding apart": plan(6, (2, 1, [2], 1, 2), (2, 1, [2], 2, 1)),
    "pp2, No-Ops at both ends": plan(3, (3, 1, [4], 0, 3), (1, 1, [4], 1, 0)),
    "pp3, two chunks": plan(4, (1, 1, [3], 1, 0), (2, 1, [3], 1, 1), (1, 1, [3], 1, 0)),
    "pp2 tp2, two chunks": plan(3, (2, 2, [4], 1, 1), (2, 2, [4], 1, 1)),
    "two chunks, dp by stage: 2, 3": plan(2, (2, 1, [3, 3], 1, 1), (2, 1, [2, 1, 3], 1, 1)),
    "two chunks, tp and dp by stage: 2x1, 1x2, 1x1": plan(3, (1, 2, [4], 1, 0), (2, 1, [1, 3], 1, 1), (1, 1, [4], 1, 0)),
}


def batch(seed=0, samples=BATCH, length=LENGTH):
    """Tokens of a global batch; some are not to be predicted, so that micro-batches count differently."""
    generator = torch.Generator().manual_seed(seed)
    ids = torch.randint(3, VOCABULARY, (samples, length), generator=generator)
    labels = ids.clone()
    labels[torch.rand(ids.shape, generator=generator) < 0.2] = -100
    labels[0, 4:] = -100
    return {"input_ids": ids, "labels": labels}


def model(config, seed=0):
    """The whole model as transformers makes it, weights large enough for every part to matter."""
    torch.manual_seed(seed)
    made = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
    with torch.no_grad():
        for parameter in made.parameters():
            if parameter.dim() > 1:
                parameter.mul_(4)
            else:
                parameter.add_(torch.randn_like(parameter) * 0.05)
    return made.train()
