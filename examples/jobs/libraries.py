"""Three small jobs whose peaks depend on what cuDNN, cuFFT, cuSOLVER and cuSPARSE take for a moment.

usage: libraries.py NAME        NAME is one of the functions below

Sizes vary from step to step, by a fixed seed. Weights and data are random.
"""

import random
import sys

import torch
from blind_parts import cuda, learn
from torch import nn
from torch.nn import functional as F

draw = random.Random(43)


def listen():
    """Speech: frames by Fourier transforms of sounds of any length, recurrent layers one way, a CTC loss."""
    front = cuda(nn.Linear(551, 1536))
    layers = cuda(nn.LSTM(1536, 1024, 3, dropout=0.1)), cuda(nn.GRU(1024, 1280, 2)), cuda(nn.RNN(1280, 768, 2))
    head = cuda(nn.Linear(768, 64))
    optimizer = torch.optim.Adam(nn.ModuleList([front, *layers, head]).parameters(), 1e-4)
    for _ in range(6):
        count = draw.randrange(20, 48)
        frames = sorted((draw.randrange(150, 900) for _ in range(count)), reverse=True)
        sound = torch.randn(count, frames[0] * 441 + draw.randrange(441), device="cuda")
        loud = torch.fft.irfft(torch.fft.rfft(sound).abs().sqrt(), n=sound.shape[1])
        spectrum = torch.stft(loud, 1100, 441, window=torch.hann_window(1100, device="cuda"), return_complex=True)
        seen = front(spectrum.abs().mT)[:, : frames[0]]
        state = nn.utils.rnn.pack_padded_sequence(seen, frames, batch_first=True)
        for layer in layers:
            state, _ = layer(state)
        padded, _ = nn.utils.rnn.pad_packed_sequence(state)
        scores = head(padded).log_softmax(2)
        lengths = [draw.randrange(10, 60) for _ in range(count)]
        labels = torch.randint(1, 64, (sum(lengths),), dtype=torch.int32)
        learn(F.ctc_loss(scores, labels, [scores.shape[0]] * count, lengths), optimizer)


def whiten():
    """Features without correlation: eigenvalues, Cholesky, singular values, QR and LU of matrices of any size."""
    net = cuda(nn.Sequential(nn.Linear(1500, 4096), nn.GELU(), nn.Linear(4096, 1500)))
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    for _ in range(6):
        x = net(torch.randn(draw.randrange(2000, 6000), 1500, device="cuda"))
        width = draw.randrange(600, 1500)
        square = torch.eye(width, device="cuda") + 1e-3 * (x[:, :width].T @ x[:, :width])
        values, vectors = torch.linalg.eigh(square)
        white = x[:, :width] @ (vectors * values.rsqrt()) @ vectors.T
        factor = torch.linalg.cholesky(square)
        rest = torch.linalg.solve(square, white.T) + torch.linalg.qr(x[:1800, :width].T.contiguous())[0].sum()
        with torch.no_grad():
            tall = x[: draw.randrange(1500, 2000), : draw.randrange(300, 700)].contiguous()
            torch.linalg.svd(tall, full_matrices=False)
            torch.linalg.eigvalsh(square[:400, :400].double())
        learn(rest.square().mean() + factor.diagonal().log().mean(), optimizer)


def mesh():
    """A field on a mesh: products with sparse matrices, pictures of it with channels last, waves by Fourier transforms."""
    mix = cuda(nn.Linear(96, 96))
    look = cuda(nn.Sequential(nn.BatchNorm2d(96), nn.ReLU(), nn.BatchNorm2d(96)))
    optimizer = torch.optim.AdamW([*mix.parameters(), *look.parameters()], 1e-3)
    for _ in range(6):
        nodes = draw.randrange(100_000, 250_000)
        each = draw.randrange(12, 30)
        offsets = torch.arange(nodes + 1, device="cuda") * each
        near = (torch.arange(nodes, device="cuda")[:, None] + torch.arange(each, device="cuda") * 3) % nodes
        matrix = torch.sparse_csr_tensor(offsets, near.sort(1).values.flatten(), torch.ones(nodes * each, device="cuda"))
        field = matrix @ mix(torch.randn(nodes, 96, device="cuda"))
        field = field + (matrix @ field[:, 0].contiguous())[:, None]
        side = draw.randrange(150, 220)
        pictures = field[: 2 * side * side].reshape(2, side, side, 96).permute(0, 3, 1, 2)
        waves = torch.fft.rfft2(look(pictures).contiguous(), s=(side, 2 * side + 1)).abs()
        learn(waves.mean() + torch.fft.fft(field.T.contiguous()).abs().mean(), optimizer)


if __name__ == "__main__":
    jobs = {job.__name__: job for job in (listen, whiten, mesh)}
    if len(sys.argv) != 2 or sys.argv[1] not in jobs:
        sys.exit(f"usage: libraries.py {'|'.join(jobs)}")
    jobs[sys.argv[1]]()
