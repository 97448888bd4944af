"""Speech: wav2vec2, hubert and wavlm with the CTC loss, whisper with transcripts, or layers of LSTM (`lstm`).

`--length` is in seconds of the longest utterance; with `--varied` each batch is as long as its longest.
"""

import torch
from learner import Learner, between
from torch import nn
from transformers import AutoConfig, AutoModelForCTC, AutoModelForSpeechSeq2Seq

RATE = 16_000  # samples a second
LETTERS = 32
FRAMES, BANDS = 100, 80  # of a spectrogram, a second


class Recurrent(nn.Module):
    """Spectrograms through layers of LSTM to letters."""

    def __init__(self, width, layers):
        super().__init__()
        self.lstm = nn.LSTM(BANDS, width, layers, bidirectional=True, batch_first=True)
        self.head = nn.Linear(2 * width, LETTERS)

    def forward(self, sounds):
        return self.head(self.lstm(sounds)[0])


def spell(model, input_values, labels):
    letters = model(input_values).float().log_softmax(-1).transpose(0, 1)
    frames = torch.full((labels.shape[0],), letters.shape[0])
    return nn.functional.ctc_loss(letters, labels, frames, torch.full_like(frames, labels.shape[1]), zero_infinity=True)


def build(given):
    if given.family == "lstm":
        return Learner(Recurrent(given.width, given.layers), spell)
    if given.family == "whisper":
        ends = {"layers": given.layers, "attention_heads": given.width // 64, "ffn_dim": 4 * given.width}
        both = {f"{end}_{name}": value for end in ("encoder", "decoder") for name, value in ends.items()}
        config = AutoConfig.for_model("whisper", d_model=given.width, use_cache=False, **both)
        return AutoModelForSpeechSeq2Seq.from_config(config)
    config = AutoConfig.for_model(
        given.family, hidden_size=given.width, num_hidden_layers=given.layers, num_attention_heads=given.width // 64,
        intermediate_size=4 * given.width, vocab_size=LETTERS, ctc_loss_reduction="mean", ctc_zero_infinity=True,
        mask_time_prob=0.0, layerdrop=0.0,
    )
    return AutoModelForCTC.from_config(config)


def batch(given, draw):
    seconds = given.length
    if given.varied:  # the longest of a batch
        seconds = between(draw, max(2, given.length // 4), given.length)
    if given.family == "whisper":  # always thirty seconds of sound; the transcripts vary
        labels = torch.randint(5, 20_000, (given.batch, 7 * seconds), generator=draw)
        return {"input_features": torch.zeros(given.batch, BANDS, 3000), "labels": labels}
    labels = torch.randint(1, LETTERS, (given.batch, 8 * seconds), generator=draw)
    shape = (FRAMES * seconds, BANDS) if given.family == "lstm" else (RATE * seconds,)
    return {"input_values": torch.zeros(given.batch, *shape), "labels": labels}
