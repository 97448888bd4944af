"""CLIP (ViT-L/14 and its text tower, 428 million parameters) learns from pairs of images and
captions by `Trainer`: bf16, gradient checkpointing, captions of up to 77 tokens.

usage: clip_trainer.py [--batch 256] [--image 224] [--layers 24] [--steps 10]
"""

import argparse

import torch
from texts import Texts, pad
from transformers import CLIPConfig, CLIPModel, Trainer, TrainingArguments

parser = argparse.ArgumentParser()
parser.add_argument("--batch", type=int, default=256)
parser.add_argument("--image", type=int, default=224)
parser.add_argument("--layers", type=int, default=24, help="of the image's tower")
parser.add_argument("--steps", type=int, default=10)
given = parser.parse_args()

VOCABULARY, LONGEST = 49408, 77


class Pairs(Texts):
    """A random image with each caption."""

    def __getitem__(self, index):
        draw = torch.Generator().manual_seed(index)
        pixels = torch.rand(3, given.image, given.image, generator=draw)
        return {**super().__getitem__(index), "pixel_values": pixels}


def collate(pairs):
    """The captions padded, the images stacked."""
    texts = pad(pairs, multiple=1)
    pixels = torch.stack([pair["pixel_values"] for pair in pairs])
    ids, mask = texts["input_ids"], texts["attention_mask"]
    return {"input_ids": ids, "attention_mask": mask, "pixel_values": pixels, "return_loss": True}


text = {"vocab_size": VOCABULARY, "hidden_size": 768, "intermediate_size": 3072}
image = {"hidden_size": 1024, "intermediate_size": 4096, "image_size": given.image}
config = CLIPConfig(
    text_config={**text, "num_hidden_layers": 12, "num_attention_heads": 12},
    vision_config={
        **image,
        "patch_size": 14,
        "num_hidden_layers": given.layers,
        "num_attention_heads": 16,
    },
    projection_dim=768,
)
torch.manual_seed(0)
model = CLIPModel(config)
arguments = TrainingArguments(
    output_dir="/tmp/clip_trainer",
    per_device_train_batch_size=given.batch,
    gradient_checkpointing=True,
    max_steps=given.steps,
    learning_rate=5e-4,
    weight_decay=0.2,
    bf16=True,
    dataloader_num_workers=2,
    logging_steps=1,
    save_strategy="no",
    report_to="none",
    disable_tqdm=True,
)
data = Pairs(given.batch * given.steps, VOCABULARY, LONGEST, shortest=4, typical=16)
Trainer(model=model, args=arguments, train_dataset=data, data_collator=collate).train()
