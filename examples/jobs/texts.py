"""Texts: random token ids whose lengths vary, and the collator that pads a batch to its longest.

The lengths are drawn as those of instructions and answers are: most are short, few are long. They
are the same on every machine, because the generator is seeded and runs on the host.
"""

import torch


class Texts(torch.utils.data.Dataset):
    """`count` texts of `shortest` to `longest` tokens."""

    def __init__(self, count, vocabulary, longest, shortest=16, typical=300, seed=0):
        draw = torch.Generator().manual_seed(seed)
        lengths = torch.empty(count).log_normal_(torch.tensor(typical).log(), 0.7, generator=draw)
        self.lengths = lengths.long().clamp(shortest, longest).tolist()
        self.vocabulary = vocabulary
        self.seed = seed

    def __len__(self):
        return len(self.lengths)

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(self.seed * 1_000_003 + index)
        ids = torch.randint(5, self.vocabulary, (self.lengths[index],), generator=draw)
        return {"input_ids": ids}


def pad(examples, multiple=8):
    """One batch: ids, the mask of what is text, and labels that leave the padding out."""
    longest = max(len(example["input_ids"]) for example in examples)
    longest = -(-longest // multiple) * multiple
    ids = torch.zeros(len(examples), longest, dtype=torch.long)
    mask = torch.zeros_like(ids)
    for row, example in enumerate(examples):
        length = len(example["input_ids"])
        ids[row, :length] = example["input_ids"]
        mask[row, :length] = 1
    return {"input_ids": ids, "attention_mask": mask, "labels": ids.masked_fill(mask == 0, -100)}
