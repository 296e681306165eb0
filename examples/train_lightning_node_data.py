"""Train GraphSAGE with PyG's LightningNodeData: `train_lightning_node_data.py SOURCE EPOCHS`."""

import sys

import pytorch_lightning as lightning
import torch
from spsample.pyg import NeighborSampler
from torch_geometric.data.lightning import LightningNodeData

from graph_data import SAGE, load


class Classifier(lightning.LightningModule):
    """GraphSAGE, and how many test vertices it finds."""

    def __init__(self, dim: int, classes: int) -> None:
        super().__init__()
        self.model, self.hits = SAGE(dim, classes), []

    def training_step(self, batch, _):
        """The loss of the seeds of a batch, which come first."""
        out = self.model(batch.x, batch.edge_index)[: batch.batch_size]
        return torch.nn.functional.cross_entropy(out, batch.y[: batch.batch_size])

    def test_step(self, batch, batch_idx) -> None:
        """Which seeds of a batch are classified right."""
        self.hits.append((self.model(batch.x, batch.edge_index).argmax(1) == batch.y)[: batch.batch_size])

    def configure_optimizers(self):
        """Adam."""
        return torch.optim.Adam(self.parameters(), lr=0.01)


if __name__ == "__main__":
    source, epochs = sys.argv[1:]
    data = load(source)
    lightning.seed_everything(0)
    sampler = NeighborSampler(data, [10, 10])
    whole = {"num_neighbors": [-1, -1]}  # for the test: all neighbours
    module = LightningNodeData(
        data, node_sampler=sampler, eval_loader_kwargs=whole, batch_size=256, num_workers=0, pin_memory=False
    )
    model = Classifier(data.num_features, int(data.y.max()) + 1)
    quiet = {
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
    }
    trainer = lightning.Trainer(accelerator="cpu", devices=1, max_epochs=int(epochs), **quiet)
    trainer.fit(model, module)
    trainer.test(model, module, verbose=False)
    print(f"accuracy {torch.cat(model.hits).double().mean():.4f} of {len(torch.cat(model.hits))}")
