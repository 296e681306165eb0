"""Train GraphSAGE with Lightning on two devices: `train_lightning.py SOURCE EPOCHS`."""

import sys

import pytorch_lightning as lightning
import torch
from spsample.pyg import NeighborLoader

from graph_data import SAGE, accuracy, load


class Classifier(lightning.LightningModule):
    """GraphSAGE, and the seeds that this device has seen."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.model, self.seen = SAGE(dim, classes), []

    def training_step(self, batch, _):
        """The loss of the seeds of a batch, which come first."""
        self.seen.append(batch.n_id[: batch.batch_size])
        out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
        return torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])

    def on_train_epoch_end(self) -> None:
        """Say how the seeds were shared out."""
        seen = self.all_gather(torch.cat(self.seen)).reshape(self.trainer.world_size, -1)
        self.seen.clear()
        shares = " + ".join(str(len(one)) for one in seen)
        self.print(f"epoch {self.current_epoch}: seeds {shares}, {len(seen.unique())} of them distinct")

    def configure_optimizers(self):
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


if __name__ == "__main__":
    source, epochs = sys.argv[1:]
    data = load(source)
    lightning.seed_everything(0)
    loader = NeighborLoader(data, [10, 10], input_nodes=data.train_mask, batch_size=256, shuffle=True)
    model = Classifier(data.num_features, int(data.y.max()) + 1)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(accelerator="cpu", devices=2, strategy="ddp", max_epochs=int(epochs), **quiet)
    trainer.fit(model, loader)  # Lightning shares out the seeds: it makes the loader anew with a DistributedSampler
    if trainer.is_global_zero:
        print(f"accuracy {accuracy(model.model, data):.4f}")
