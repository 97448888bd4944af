"""Speech recognition: two convolutions, five bidirectional LSTM layers through cuDNN, and the CTC
loss, on utterances of varied lengths.

usage: speech.py [--batch 32] [--seconds 20] [--width 1024] [--layers 5] [--steps 16]
"""

import argparse

import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence, pad_sequence

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=32)
parser.add_argument("--seconds", type=int, default=20, help="of the longest utterance")
parser.add_argument("--width", type=int, default=1024)
parser.add_argument("--layers", type=int, default=5)
parser.add_argument("--steps", type=int, default=16)
given = parser.parse_args()

FRAMES, BANDS, LETTERS = 100, 80, 29


class Recognizer(nn.Module):
    """Spectrograms in, a distribution over letters for every second frame out."""

    def __init__(self, width, layers):
        super().__init__()
        self.convolutions = nn.Sequential(
            nn.Conv2d(1, 32, (41, 11), stride=(2, 2), padding=(20, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
            nn.Conv2d(32, 32, (21, 11), stride=(2, 1), padding=(10, 5)),
            nn.BatchNorm2d(32),
            nn.Hardtanh(0, 20),
        )
        self.lstm = nn.LSTM(32 * BANDS // 4, width, layers, bidirectional=True, dropout=0.1)
        self.head = nn.Linear(2 * width, LETTERS)

    def forward(self, sounds, lengths):
        h = self.convolutions(sounds.transpose(1, 2).unsqueeze(1))
        h = h.flatten(1, 2).permute(2, 0, 1)
        lengths = (lengths + 1) // 2
        packed = pack_padded_sequence(h, lengths, enforce_sorted=False)
        h, _ = pad_packed_sequence(self.lstm(packed)[0])
        return self.head(h).log_softmax(-1), lengths


def batch(draw):
    """Utterances of one second to `--seconds`, about 12 letters a second."""
    lengths = torch.randint(FRAMES, FRAMES * given.seconds, (given.batch,), generator=draw)
    sounds = [torch.randn(int(length), BANDS, generator=draw) for length in lengths]
    letters = lengths * 12 // FRAMES
    texts = torch.randint(1, LETTERS, (int(letters.sum()),), generator=draw)
    return pad_sequence(sounds, batch_first=True), lengths, texts, letters


torch.manual_seed(0)
draw = torch.Generator().manual_seed(0)
model = Recognizer(given.width, given.layers).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4)
measure = nn.CTCLoss(zero_infinity=True)
for step in range(given.steps):
    sounds, lengths, texts, letters = batch(draw)
    answer, frames = model(sounds.to("cuda"), lengths)
    loss = measure(answer, texts.to("cuda"), frames, letters)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 400)
    optimizer.step()
    print(f"step {step}: {sounds.shape[1] / FRAMES:.1f} s, loss {loss.item():.3f}")
