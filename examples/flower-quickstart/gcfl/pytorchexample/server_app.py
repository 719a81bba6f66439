"""The server: federated averaging, and a test set that no client has seen."""

import torch
from flwr.app import ArrayRecord, ConfigRecord, Context, MetricRecord
from flwr.serverapp import Grid, ServerApp
from flwr.serverapp.strategy import FedAvg

from gcfl.flower import GCFL
from pytorchexample.task import Net, load_all, load_test, test

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    seed = context.run_config["seed"]
    torch.manual_seed(seed)
    arrays = ArrayRecord(Net().state_dict())

    def central(_: int, arrays: ArrayRecord) -> MetricRecord:
        model = Net()
        model.load_state_dict(arrays.to_torch_state_dict())
        loss, accuracy = test(model, load_test(seed))
        return MetricRecord({"loss": loss, "accuracy": accuracy})

    strategy = FedAvg(min_available_nodes=2)
    strategy = GCFL(strategy, model=Net, validation=load_all(seed)[0], score="distance")
    strategy.start(
        grid=grid,
        initial_arrays=arrays,
        num_rounds=context.run_config["num-server-rounds"],
        train_config=ConfigRecord({"lr": context.run_config["learning-rate"]}),
        evaluate_fn=central,
    )
