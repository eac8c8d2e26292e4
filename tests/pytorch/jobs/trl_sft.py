# SPDX-License-Identifier: GPL-2.0-or-later
"""TRL's SFTTrainer on a tiny GPT-2, over sequences that are tokens already. Arguments: as those of hf.py, but for `evaluate`."""

import sys

import datasets
import tokenizers
import transformers
import trl

import common
from hf import BATCH, Log, Texts
from swell.integrations import SwellCallback


def tokenizer():
    """Returns a tokenizer with a word for each number; SFTTrainer wants one, and pads by it."""
    words = {"<pad>": 62, "<eos>": 63, **{str(number): number for number in range(62)}}
    return transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizers.Tokenizer(tokenizers.models.WordLevel(words, unk_token="0")),
                                                pad_token="<pad>", eos_token="<eos>", unk_token="0")


def main(arguments):
    transformers.set_seed(5)
    model = transformers.GPT2LMHeadModel(transformers.GPT2Config(
        vocab_size=64, n_positions=24, n_embd=32, n_layer=2, n_head=2, resid_pdrop=0, embd_pdrop=0, attn_pdrop=0,
        bos_token_id=63, eos_token_id=63, pad_token_id=62))
    # The rows have unequal lengths, so that workers and passes have unequal numbers of tokens.
    rows = [row[:12 + at % 13].tolist() for at, row in enumerate(Texts(common.SAMPLES).rows)]
    args = trl.SFTConfig(
        output_dir=common.path("out"), per_device_train_batch_size=BATCH, gradient_accumulation_steps=common.GLOBAL_BATCH // BATCH,
        max_steps=common.steps(), learning_rate=3e-3, warmup_steps=10, logging_steps=1, logging_first_step=True,
        save_steps=1000 if "no-checkpoints" in arguments else 10, save_total_limit=2, use_cpu=True, bf16=False, report_to=[], disable_tqdm=True,
        logging_nan_inf_filter=False, activation_checkpointing=False, max_length=24)
    trainer = trl.SFTTrainer(model, args, train_dataset=datasets.Dataset.from_dict({"input_ids": rows}), processing_class=tokenizer(), callbacks=[Log()])
    SwellCallback.attach(trainer)
    trainer.train()


if __name__ == "__main__":
    main(sys.argv[1:])
