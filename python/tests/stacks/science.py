"""Science: operators, equations, Gaussian processes, probabilistic programs."""

from .listed import stack


@stack("torchdiffeq==0.2.5", mib=94)
def torchdiffeq():
    """An adaptive solver, whose steps values decide"""
    import torch
    from torchdiffeq import odeint

    from .common import perceptron, train

    class Field(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.net = perceptron()

        def forward(self, _time, state):
            return self.net(state)

    times = torch.linspace(0, 1, 4, device="cuda")
    train(Field().cuda(), lambda field: odeint(field, torch.randn(64, 256, device="cuda"), times)[-1].square().mean())


@stack("torchsde==0.2.6", mib=36)
def torchsde():
    """A stochastic differential equation, with the adjoint"""
    import torch
    import torchsde

    from .common import perceptron, train

    class Equation(torch.nn.Module):
        noise_type, sde_type = "diagonal", "ito"

        def __init__(self):
            super().__init__()
            self.drift, self.noise = perceptron(64, 2), perceptron(64, 2)

        def f(self, _time, state):
            return self.drift(state)

        def g(self, _time, state):
            return self.noise(state)

    times = torch.linspace(0, 1, 4, device="cuda")
    start = torch.randn(32, 64, device="cuda")
    train(Equation().cuda(), lambda model: torchsde.sdeint_adjoint(model, start, times, dt=0.1)[-1].square().mean())


@stack("gpytorch==1.15.2", mib=72)
def gpytorch():
    """A Gaussian process, exact"""
    import gpytorch
    import torch

    from .common import train

    rows, labels = torch.rand(500, 4, device="cuda"), torch.randn(500, device="cuda")

    class Process(gpytorch.models.ExactGP):
        def __init__(self, likelihood):
            super().__init__(rows, labels, likelihood)
            self.mean_module = gpytorch.means.ConstantMean()
            self.covar_module = gpytorch.kernels.ScaleKernel(gpytorch.kernels.MaternKernel())

        def forward(self, points):
            return gpytorch.distributions.MultivariateNormal(self.mean_module(points), self.covar_module(points))

    model = Process(gpytorch.likelihoods.GaussianLikelihood()).cuda()
    loss = gpytorch.mlls.ExactMarginalLogLikelihood(model.likelihood, model)
    train(model, lambda model: -loss(model(rows), labels))


@stack("botorch==0.18.1", mib=66)
def botorch():
    """Bayesian optimization: an acquisition function over a fitted process"""
    import torch
    from botorch.acquisition import qLogExpectedImprovement
    from botorch.models import SingleTaskGP

    rows = torch.rand(50, 4, dtype=torch.double, device="cuda")
    model = SingleTaskGP(rows, rows.sum(1, keepdim=True))
    gain = qLogExpectedImprovement(model, best_f=1.0)
    points = torch.rand(16, 2, 4, dtype=torch.double, device="cuda", requires_grad=True)
    gain(points).sum().backward()


@stack("neuraloperator==2.0.0", mib=144)
def neural_operator():
    """A Fourier neural operator"""
    import torch
    from neuralop.models import FNO

    from .common import train

    model = FNO(n_modes=(12, 12), in_channels=1, out_channels=1, hidden_channels=32).cuda()
    train(model, lambda model: model(torch.randn(4, 1, 64, 64, device="cuda")).square().mean())


@stack("torchmetrics==1.9.0", mib=56)
def torchmetrics():
    """Confusion matrices, curves and image quality on the GPU"""
    import torch
    import torchmetrics

    guess, truth = torch.rand(256, 10, device="cuda").softmax(1), torch.randint(0, 10, (256,), device="cuda")
    for metric in [
        torchmetrics.Accuracy("multiclass", num_classes=10), torchmetrics.AUROC("multiclass", num_classes=10),
        torchmetrics.ConfusionMatrix("multiclass", num_classes=10),
    ]:
        metric.cuda()(guess, truth)
    pictures = torch.rand(4, 3, 64, 64, device="cuda")
    torchmetrics.image.StructuralSimilarityIndexMeasure().cuda()(pictures, pictures)
