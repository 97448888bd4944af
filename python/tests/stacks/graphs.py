"""Graphs and molecules."""

from .listed import stack


@stack("torch-geometric==2.8.1", mib=108)
def pyg():
    """Graph attention, batches of graphs, pooling"""
    import torch
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GATConv, GCNConv, global_mean_pool

    from .common import train

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.second = GATConv(32, 64, heads=4), GCNConv(256, 64)

        def forward(self, batch):
            hidden = self.first(batch.x, batch.edge_index).relu()
            return global_mean_pool(self.second(hidden, batch.edge_index), batch.batch)

    graphs = [Data(x=torch.randn(100, 32), edge_index=torch.randint(0, 100, (2, 400))) for _ in range(16)]
    batch = Batch.from_data_list(graphs).cuda()
    train(Net().cuda(), lambda model: model(batch).square().mean())


@stack("e3nn==0.6.0", mib=66)
def e3nn():
    """An equivariant tensor product over edges"""
    import torch
    from e3nn import o3

    from .common import train

    product = o3.FullyConnectedTensorProduct("16x0e + 16x1o", "1x0e + 1x1o + 1x2e", "16x0e + 16x1o").cuda()
    nodes = product.irreps_in1.randn(200, -1, device="cuda")
    angles = o3.spherical_harmonics("0e + 1o + 2e", torch.randn(200, 3, device="cuda"), normalize=True)
    train(product, lambda product: product(nodes, angles).square().mean())
