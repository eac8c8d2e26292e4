# SPDX-License-Identifier: GPL-2.0-or-later
"""A loop over Elastic that logs each step's loss as docs/scripts.md says, on rank 0. Argument: wandb, tensorboard or mlflow. SLURM_JOB_ID: of the job."""

import os

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import common
from swell.torch import Elastic

JOB = "4711"


def of_wandb(elastic):
    import wandb
    run = wandb.init(project="tests", id=os.environ["SLURM_JOB_ID"], resume="allow", mode="offline", dir=common.path(""), settings=wandb.Settings(console="off", x_disable_stats=True))
    return lambda step, loss: run.log({"loss": loss}, step=step), run.finish


def of_tensorboard(elastic):
    from torch.utils.tensorboard import SummaryWriter
    writer = SummaryWriter(common.path("runs/") + os.environ["SLURM_JOB_ID"], purge_step=elastic.steps + 1)

    def log(step, loss):
        writer.add_scalar("loss", loss, step)
        writer.flush()      # or it is with a killed process
    return log, writer.close


def of_mlflow(elastic):
    import mlflow
    mlflow.set_tracking_uri(f"file://{os.path.abspath(common.path('mlruns'))}")
    job = os.environ["SLURM_JOB_ID"]
    found = mlflow.search_runs(filter_string=f"attributes.run_name = '{job}'", output_format="list")
    mlflow.start_run(run_id=found[0].info.run_id if found else None, run_name=job)
    return lambda step, loss: mlflow.log_metric("loss", loss, step=step), mlflow.end_run


def main(arguments):
    torch.set_num_threads(1)
    os.environ.update(SLURM_JOB_ID=JOB, MLFLOW_ALLOW_FILE_STORE="true", MLFLOW_ENABLE_ASYNC_LOGGING="false")
    dist.init_process_group("gloo")
    model = DistributedDataParallel(common.network())
    elastic = Elastic(model, torch.optim.AdamW(model.parameters(), lr=1e-2), directory=common.path("checkpoints"), global_batch=common.GLOBAL_BATCH, checkpoint_every=4)
    log, end = {"wandb": of_wandb, "tensorboard": of_tensorboard, "mlflow": of_mlflow}[arguments[0]](elastic) if elastic.rank == 0 else (lambda *_: None, lambda: None)
    try:
        for x, y in elastic.batches(common.regression(), steps=common.steps()):
            if elastic.step(torch.nn.functional.mse_loss(model(x), y)):
                loss = elastic.mean_loss()
                log(elastic.steps, loss)
                common.log(elastic.steps, loss, elastic.world)
    finally:        # also where it leaves: a worker that is resized ends by SystemExit
        end()
    dist.destroy_process_group()
